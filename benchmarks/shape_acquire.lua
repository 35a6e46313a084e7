-- shape_acquire.lua: take a lock of redlatch's shape, without anything around it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
--
-- Returns  -1  acquired
--           n  held by another, for n ms at most
local lock, owner, lease = KEYS[1], ARGV[1], ARGV[2]
local left = redis.call('PTTL', lock)
if left ~= -2 then
  return left
end
redis.call('HSET', lock, owner, 1)
redis.call('PEXPIRE', lock, lease)
return -1
