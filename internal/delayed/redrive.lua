-- redrive.lua: make dead letters due again, as if they had never been tried.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[4]  claims: hash, id -> latest claim
-- KEYS[5]  errors: hash, id -> text of the last error
-- KEYS[6]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  id, or nothing for up to 100 that died until then
-- ARGV[2]  the time until when, µs; 0 for now
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; how many are due again, -1 if the message of this id is not a
--          dead letter; the time until when
local due, dead, bodies, claims, errors, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, limit = ARGV[1], ARGV[2]

local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local members
if limit == '0' then
  limit = now
end
if id == '' then
  members = redis.call('zrangebyscore', dead, '-inf', limit, 'limit', 0, 100)
else
  local body = redis.call('hget', bodies, id)
  members = {string.sub(body or '', 1, 16) .. id}
  if not redis.call('zscore', dead, members[1]) then
    return {0, body and -1 or 0, limit}
  end
end
for _, member in ipairs(members) do
  redis.call('zrem', dead, member)
  redis.call('zadd', due, now, member)
  redis.call('hdel', claims, string.sub(member, 17))
  redis.call('hdel', errors, string.sub(member, 17))
end
return {redis.call('exists', waiters), #members, limit}
