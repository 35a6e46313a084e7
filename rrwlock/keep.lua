-- keep.lua: set the levels and the lease of an owner: of writing, of reading, or of both.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2..n+1]  the owner's levels of reading, n of them: strings, each of which lives as long as its level
-- ARGV[1]  owner
-- ARGV[2]  what the keys of its levels begin with: a number follows
-- ARGV[3]  levels of writing; with 0 a writer goes on as a reader, and those who wait are notified
-- ARGV[4]  lease, ms
-- ARGV[5]  the most that may be left of the lease, at least 1000 ms: where more is, a newer call has set levels and lease
-- ARGV[6]  channel of its waiters
--
-- Returns  1  set
--          0  the owner does not hold the lock, or does not write; nothing was changed
--          n  n ms are left of the lease, which is more than the most; nothing was changed
local lock, first, reads = KEYS[1], KEYS[2], #KEYS - 1
local owner, prefix, writes, lease, most, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local field = owner .. ':write'
local wrote, read = redis.call('hexists', lock, field) == 1, redis.call('hget', lock, owner)
if not wrote and (writes > 0 or not read) then
  return 0
end
local left = redis.call('pttl', wrote and lock or first)
if left > most then
  return left
end
-- PEXPIRE comes first: a full Redis allows it, and then allows the rest in the same script. The hash lasts as long as any
-- holder: it may end sooner only if this one is alone, beside the mode.
left = redis.call('pttl', lock)
local sets = left < lease or left <= most and (wrote or redis.call('hlen', lock) == 2)
redis.call('pexpire', lock, sets and lease or left)
for i = 1, reads do
  left = redis.call('pttl', KEYS[i + 1])
  if left == -2 then
    redis.call('set', KEYS[i + 1], '1', 'px', lease)
  elseif left < lease or left <= most then
    redis.call('pexpire', KEYS[i + 1], lease)
  end
end
if reads > 0 then
  redis.call('hset', lock, owner, reads)
elseif read then
  redis.call('hdel', lock, owner)
end
if writes > 0 then
  redis.call('hset', lock, field, writes)
elseif wrote then
  redis.call('hset', lock, 'mode', 'read')
  local ended = redis.pcall('hdel', lock, field)
  if type(ended) == 'table' then
    redis.call('hset', lock, 'mode', 'write')
    return ended
  end
  redis.pcall('publish', channel, '1') -- as for a release by a writer: who gets no message looks again
end
for i = reads + 1, tonumber(read or 0) do
  -- The wire format numbers the levels. One that has moved to another node means nothing there, and expires.
  redis.pcall('del', prefix .. i)
end
return 1
