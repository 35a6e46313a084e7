-- set.lua: keep a value that was not loaded. The result of a load in flight will not be kept.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  the value
-- ARGV[2]  for how long it is kept, ms
-- ARGV[3]  for how long it is fresh, ms; 0 for all that time
-- ARGV[4]  channel of those who wait for a load
-- ARGV[5]  channel of near caches; empty for none
-- ARGV[6]  the message for them
--
-- Returns  1
local key = KEYS[1]
local data, ttl, fresh, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local near, message = ARGV[5], ARGV[6]

local e = look(key)
if near ~= '' then
  redis.call('PUBLISH', near, message) -- a plain channel, on a cluster too
end
e.over, e.at = now + ttl, 0
redis.call('hset', key, 'kept', 'value', 'data', data, 'over', e.over, 'stale', fresh > 0 and now + fresh or e.over)
local refused = expire(key, e, 'kept', 'data', 'over', 'stale')
if refused then
  return refused
end
redis.call('hdel', key, 'keep', 'made', 'error', 'at')
if e.claimed then
  redis.pcall('publish', channel, '1')
end
return 1
