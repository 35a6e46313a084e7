-- pass.lua: give a lock from one owner to another, who holds one level of it. Nobody is told.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner until now
-- ARGV[2]  owner from now on
-- ARGV[3]  lease, ms
--
-- Returns  1  passed
--          0  the first owner does not hold the lock; nothing was changed
local lock = KEYS[1]
local from, to, lease = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hdel', lock, from) == 0 then
  return 0
end
redis.call('hset', lock, to, 1)
redis.call('pexpire', lock, lease)
return 1
