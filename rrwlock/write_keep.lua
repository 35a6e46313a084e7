-- write_keep.lua: set the levels and the lease of a writer.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, ms: where more is, the call is late, and does not shorten what a newer one set
--
-- Returns  1  set
--          0  the owner does not hold the write lock; nothing was changed
local lock = KEYS[1]
local owner, levels, lease, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local field = owner .. ':write'

if redis.call('hexists', lock, field) == 0 then
  return 0
end
-- PEXPIRE comes first: a full Redis allows it, and then allows HSET in the same script. The hash lasts as long as any holder:
-- it may end sooner only if the owner does not read as well.
local left = redis.call('pttl', lock)
local sets = left < lease or left <= most and redis.call('hexists', lock, owner) == 0
redis.call('pexpire', lock, sets and lease or left)
redis.call('hset', lock, field, levels)
return 1
