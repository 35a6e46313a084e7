-- keep.lua: set the levels and the lease of a lock that its owner holds.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, ms: where more is, the call is late, and does not shorten what a newer one set
--
-- Returns  1  set
--          0  the owner does not hold the lock; nothing was changed
local lock = KEYS[1]
local owner, levels, lease, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
redis.call('hset', lock, owner, levels)
local left = redis.call('pttl', lock)
if left < lease or left <= most then
  redis.call('pexpire', lock, lease)
end
return 1
