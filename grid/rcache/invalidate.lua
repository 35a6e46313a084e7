-- invalidate.lua: delete a result, and have that of a load in flight not be kept.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  channel of near caches; empty for none
-- ARGV[2]  the message for them
--
-- Returns  1 if there was either, 0 if not
local key = KEYS[1]
local near, message = ARGV[1], ARGV[2]

local e = look(key)
if near ~= '' then
  redis.call('PUBLISH', near, message) -- a plain channel, on a cluster too
end
if e.claimed then
  redis.call('hdel', key, 'kept', 'data', 'over', 'stale', 'made', 'keep', 'error', 'at') -- a full Redis allows it
  return 1
end
return redis.call('unlink', key)
