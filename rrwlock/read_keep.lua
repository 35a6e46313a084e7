-- read_keep.lua: set the levels and the lease of a reader, or make one of a writer.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[1]  owner
-- ARGV[2]  levels
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, ms: where more is, the call is late, and does not shorten what a newer one set
--
-- Returns  1  set
--          0  the owner holds the lock in neither mode; nothing was changed
local lock, readers = KEYS[1], KEYS[2]
local owner, levels, lease, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local held = redis.call('hget', lock, owner)
if not held and redis.call('hexists', lock, owner .. ':write') == 0 then
  return 0
end
redis.call('hset', lock, owner, levels)
-- The wire format builds the keys of levels from the owner's field.
local level = readers .. owner .. ':rwlock_timeout:'
for i = 1, levels do
  local left = redis.call('pttl', level .. i)
  if left < lease or left <= most then
    redis.call('set', level .. i, '1', 'px', lease)
  end
end
for i = levels + 1, tonumber(held or 0) do
  redis.call('del', level .. i)
end
-- The hash lasts as long as any holder: it may end sooner only if this reader is alone, beside the mode.
local left = redis.call('pttl', lock)
if left < lease or left <= most and redis.call('hlen', lock) == 2 then
  redis.call('pexpire', lock, lease)
end
return 1
