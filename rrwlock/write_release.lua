-- write_release.lua: end the writer, whatever its levels, and wake all who wait; a writer that reads as well goes on reading.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  channel of its waiters
-- ARGV[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[3]  owner
--
-- Returns  0  the owner does not hold the write lock; nothing was changed
--          1  released; the owner reads, and nobody was told, as the wire format has it
--          n  released, and free; one message sent to ARGV[1], which n - 1 clients received (on a cluster, those of this node)
--         -1  released, and free; the user may not publish to ARGV[1]
local lock = KEYS[1]
local channel, readers, owner = ARGV[1], ARGV[2], ARGV[3]
local field = owner .. ':write'

if redis.call('hexists', lock, field) == 0 then
  return 0
end
local levels = redis.call('hget', lock, owner)
local left = levels and remaining(lock, readers, owner, levels) or -2
if left == -2 then
  redis.call('del', lock)
  local received = redis.pcall('publish', channel, '1')
  return type(received) == 'number' and 1 + received or -1
end
-- PEXPIRE comes first: a full Redis allows it, and then allows HSET in the same script. While the slot moves the lease stays.
if type(left) == 'table' then
  left = redis.call('pttl', lock)
end
if left >= 0 then
  redis.call('pexpire', lock, math.max(left, 1))
end
redis.call('hset', lock, 'mode', 'read')
local ended = redis.pcall('hdel', lock, field)
if type(ended) == 'table' then
  redis.call('hset', lock, 'mode', 'write')
  return ended
end
return 1
