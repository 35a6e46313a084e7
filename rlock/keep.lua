-- keep.lua: set the levels and the lease of a lock that its owner holds.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
--
-- Returns  1  set
--          0  the owner does not hold the lock; nothing was changed
local lock = KEYS[1]
local owner, levels, lease = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
redis.call('hset', lock, owner, levels)
redis.call('pexpire', lock, lease)
return 1
