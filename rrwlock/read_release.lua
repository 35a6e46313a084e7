-- read_release.lua: end a reader, whatever its levels, and wake the writers if it was the last one alive.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- KEYS[3]  channel of its waiters
-- ARGV[1]  owner
-- ARGV[2]  how many other readers to look at: among more of them the dead are left to the next writer's try
--
-- Returns  0  the owner does not read; nothing was changed
--          1  released; others hold the lock, or this owner as its writer
--          n  released, and free; one message sent to KEYS[3], which n - 1 clients heard (on a cluster, those of this node)
local lock, readers, channel = KEYS[1], KEYS[2], KEYS[3]
local owner, most = ARGV[1], tonumber(ARGV[2])

local held = redis.call('hget', lock, owner)
if not held then
  return 0
end
redis.call('hdel', lock, owner)
-- The wire format builds the keys of levels from the owner's field.
for i = 1, tonumber(held) do
  redis.call('del', readers .. owner .. ':rwlock_timeout:' .. i)
end
local others = redis.call('hlen', lock) - 1
if others > most or redis.call('hget', lock, 'mode') == 'write' then
  return 1
end
local longest, ends = -2, redis.call('pttl', lock)
if others > 0 then
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    local left = -2
    for i = 1, tonumber(fields[f + 1]) or 0 do
      left = math.max(left, redis.call('pttl', readers .. fields[f] .. ':rwlock_timeout:' .. i))
    end
    if left + 1000 >= ends and left ~= -2 then
      return 1 -- it lives about as long as the hash
    end
    if left == -2 and fields[f] ~= 'mode' then
      redis.call('hdel', lock, fields[f])
    end
    longest = math.max(longest, left)
  end
end
if longest == -2 then
  redis.call('del', lock)
  return 1 + redis.call('publish', channel, '0')
end
if longest >= 0 and ends > longest then
  redis.call('pexpire', lock, math.max(longest, 1))
end
return 1
