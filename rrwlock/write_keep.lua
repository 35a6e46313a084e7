-- write_keep.lua: set the levels and the lease of a writer.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, at least 1000 ms: where more is, a newer call has set levels and lease
--
-- Returns  1  set
--          0  the owner does not hold the write lock; nothing was changed
--          n  n ms are left, which is more than the most; nothing was changed
local lock = KEYS[1]
local owner, levels, lease, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local field = owner .. ':write'

if redis.call('hexists', lock, field) == 0 then
  return 0
end
-- The hash lasts as long as any holder: if the owner reads as well, that may be longer than the writer knows of.
local left = redis.call('pttl', lock)
local alone = redis.call('hexists', lock, owner) == 0
if alone and left > most then
  return left
end
-- PEXPIRE comes first: a full Redis allows it, and then allows HSET in the same script.
redis.call('pexpire', lock, alone and lease or math.max(left, lease))
redis.call('hset', lock, field, levels)
return 1
