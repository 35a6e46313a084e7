-- release.lua: free a fair lock, whatever its levels, and wake who is next.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- ARGV[1]  channel of the waiters, less ':' and a waiter's id
-- ARGV[2]  owner
-- ARGV[3]  1 to keep the scores as Java does
-- ARGV[4]  1 if the server knows of all who listen, being no part of a cluster, and liveness is not left to Java's rules
--
-- Returns  0  the owner does not hold the lock; nothing was changed
--          n  released; one message sent to the next waiter, if there is one, which n - 1 clients received (on a
--             cluster, those of this node). If nobody did it is as good as dead: then the first one behind it that listens
--             is sent one too, and will ask again when the time of the dead one is over
--         -1  released; the user may not publish to that channel
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local channel, owner, java, alone = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- Before anything is written: it fails if the queue is of another type.
if not redis.call('lindex', queue, 0) then
  return redis.call('hdel', lock, owner) -- nobody waits
elseif redis.call('hexists', lock, owner) == 0 then
  return 0
end
local head = first(queue, timeouts, java)
redis.call('hdel', lock, owner)
local received = wake(channel, head)
if head and received == 0 and alone == '1' then
  for _, waiter in ipairs(redis.pcall('lrange', queue, 1, 100)) do
    if wake(channel, waiter) > 0 then
      break
    end
  end
end
return received < 0 and -1 or 1 + received
