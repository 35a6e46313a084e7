-- write_release.lua: end the writer, whatever its levels, and wake all who wait; a writer that reads as well goes on reading.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- KEYS[3]  channel of its waiters
-- ARGV[1]  owner
--
-- Returns  0  the owner does not hold the write lock; nothing was changed
--          1  released; the owner reads, and nobody was told, as the wire format has it
--          n  released, and free; one message sent to KEYS[3], which n - 1 clients heard (on a cluster, those of this node)
local lock, readers, channel = KEYS[1], KEYS[2], KEYS[3]
local owner = ARGV[1]

if redis.call('hdel', lock, owner .. ':write') == 0 then
  return 0
end
local left = -2
for i = 1, tonumber(redis.call('hget', lock, owner) or 0) do
  -- The wire format builds the keys of levels from the owner's field.
  left = math.max(left, redis.call('pttl', readers .. owner .. ':rwlock_timeout:' .. i))
end
if left ~= -2 then
  redis.call('hset', lock, 'mode', 'read')
  if left >= 0 then
    redis.call('pexpire', lock, math.max(left, 1))
  end
  return 1
end
redis.call('del', lock)
return 1 + redis.call('publish', channel, '1')
