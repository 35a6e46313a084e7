-- purge.lua: remove up to 100 messages of one state for good. Their ids are free at once.
--
-- KEYS[1]  the sorted set: due, flight or dead
-- KEYS[2]  meta: hash
-- KEYS[3]  bodies: hash, id -> body
-- KEYS[4]  claims: hash, id -> latest claim
-- KEYS[5]  errors: hash, id -> text of the last error
-- ARGV[1]  1 for those whose time has come, 0 for those whose time has not, -1 for all
--
-- Returns  the number of messages removed
local set, meta, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local passed = ARGV[1]

local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local least, most = '-inf', '+inf'
if passed == '1' then
  most = now
elseif passed == '0' then
  least = '(' .. now
end
local members = redis.call('zrangebyscore', set, least, most, 'limit', 0, 100)
if #members == 0 then
  return 0
end
local ids = {}
for i, member in ipairs(members) do
  ids[i] = string.sub(member, 17)
end
redis.call('zrem', set, unpack(members))
redis.call('hdel', bodies, unpack(ids))
redis.call('hdel', claims, unpack(ids))
redis.call('hdel', errors, unpack(ids))
if redis.call('exists', bodies) == 0 and redis.call('hexists', meta, 'paused') == 0 then
  if redis.call('pexpire', meta, 86400000) == 1 then
    redis.call('hset', meta, 'expires', 1)
  end
end
return #members
