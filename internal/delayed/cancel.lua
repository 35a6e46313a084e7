-- cancel.lua: remove a message that nobody works on. Its id is free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set of messages
-- KEYS[3]  dead: sorted set of dead letters
-- KEYS[4]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[5]  claims: hash, id -> latest claim
-- KEYS[6]  errors: hash, id -> text of the last error
-- KEYS[7]  done: sorted set, ids that are remembered after their Ack
-- ARGV[1]  id
--
-- Returns   1  removed
--           0  there is no message of this id
--          -1  it is in flight
--          -2  its work was done a while ago
local meta, due, dead, bodies, claims, errors, done =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id = ARGV[1]

local body = redis.call('hget', bodies, id)
if not body then
  return redis.call('zscore', done, id) and -2 or 0
end
local member = string.sub(body, 1, 16) .. id
if redis.call('zrem', due, member) + redis.call('zrem', dead, member) == 0 then
  return -1
end
redis.call('hdel', bodies, id)
redis.call('hdel', claims, id)
redis.call('hdel', errors, id)
if redis.call('exists', bodies) == 0 and redis.call('hexists', meta, 'paused') == 0 then
  if redis.call('pexpire', meta, 86400000) == 1 then
    redis.call('hset', meta, 'expires', 1)
  end
end
return 1
