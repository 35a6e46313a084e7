-- shape_release.lua: give up a lock of redlatch's shape and tell its waiters.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  channel of its waiters
-- ARGV[1]  owner
--
-- Returns  0  ARGV[1] does not hold the lock
--          1  released; one message sent to KEYS[2]
local lock, channel, owner = KEYS[1], KEYS[2], ARGV[1]
if redis.call('HEXISTS', lock, owner) == 0 then
  return 0
end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, 0)
return 1
