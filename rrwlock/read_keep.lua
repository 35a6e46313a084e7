-- read_keep.lua: set the levels and the lease of a reader, or make one of a writer.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2..n+1]  the owner's levels, n of them: strings, each of which lives as long as its level
-- ARGV[1]  owner
-- ARGV[2]  what the keys of its levels begin with: a number follows
-- ARGV[3]  lease, ms
-- ARGV[4]  the most that may be left of the lease, at least 1000 ms: where more is, a newer call has set levels and lease; 0 to make
--          a reader, of one level
--
-- Returns  1  set
--          0  the owner holds the lock in neither mode; nothing was changed
--          n  n ms are left of the levels, which is more than the most; nothing was changed
local lock, first, levels = KEYS[1], KEYS[2], #KEYS - 1
local owner, prefix, lease, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local held = redis.call('hget', lock, owner)
if not held and redis.call('hexists', lock, owner .. ':write') == 0 then
  return 0
end
local left = redis.call('pttl', first)
if most > 0 and left > most then
  return left
end
-- PEXPIRE comes first: a full Redis allows it, and then allows the rest in the same script. The hash lasts as long as any
-- holder: it may end sooner only if this reader is alone, beside the mode.
left = redis.call('pttl', lock)
local sets = left < lease or left <= most and redis.call('hlen', lock) == 2
redis.call('pexpire', lock, sets and lease or left)
for i = 1, levels do
  left = redis.call('pttl', KEYS[i + 1])
  if left == -2 then
    redis.call('set', KEYS[i + 1], '1', 'px', lease)
  elseif left < lease or left <= most then
    redis.call('pexpire', KEYS[i + 1], lease)
  end
end
redis.call('hset', lock, owner, levels)
for i = levels + 1, tonumber(held or 0) do
  -- The wire format numbers the levels. One that has moved to another node means nothing there, and expires.
  redis.pcall('del', prefix .. i)
end
return 1
