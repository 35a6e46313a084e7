-- write_keep.lua: set the levels and the lease of a writer.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
--
-- Returns  1  set
--          0  the owner does not hold the write lock; nothing was changed
local lock = KEYS[1]
local owner, levels, lease = ARGV[1], ARGV[2], ARGV[3]
local field = owner .. ':write'

if redis.call('hexists', lock, field) == 0 then
  return 0
end
redis.call('hset', lock, field, levels)
-- The hash lasts as long as any holder: it may end sooner only if the owner does not read as well.
if redis.call('pttl', lock) < tonumber(lease) or redis.call('hexists', lock, owner) == 0 then
  redis.call('pexpire', lock, lease)
end
return 1
