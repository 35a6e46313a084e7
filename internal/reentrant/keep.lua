-- keep.lua: set the levels and the lease of a lock that its owner holds.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, at least 1000 ms: where more is, a newer call has set levels and lease
--
-- Returns  1  set
--          0  the owner does not hold the lock; nothing was changed
--          n  n ms are left, which is more than the most; nothing was changed
local lock = KEYS[1]
local owner, levels, lease, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
local left = redis.call('pttl', lock)
if left > most then
  return left
end
-- PEXPIRE comes first: a full Redis allows it, and then allows HSET in the same script.
redis.call('pexpire', lock, lease)
redis.call('hset', lock, owner, levels)
return 1
