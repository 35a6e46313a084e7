-- drop.lua: delete a result that cannot be decoded. That of a load in flight will be kept.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  the result
--
-- Returns  1 if it was there, 0 if not
local key = KEYS[1]
local data = ARGV[1]

if redis.call('hget', key, 'data') ~= data then
  return 0
end
redis.call('hdel', key, 'kept', 'data', 'over', 'stale', 'made')
return 1
