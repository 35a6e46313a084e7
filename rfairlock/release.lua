-- release.lua: free a fair lock, whatever its levels, and wake who is next.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- KEYS[4]  channel of the waiters, less ':' and a waiter's id
-- ARGV[1]  owner
-- ARGV[2]  1 to keep the scores as Java does
-- ARGV[3]  1 if the server knows of all who listen, being no part of a cluster, and liveness is not left to Java's rules
--
-- Returns  0  the owner does not hold the lock; nothing was changed
--          n  released; one message sent to the next waiter, if there is one, which n - 1 clients heard (on a cluster,
--             those of this node). If nobody did it is as good as dead: then the first one behind it that hears is sent
--             one too, and will ask again when the time of the dead one is over.
local lock, queue, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, java, alone = ARGV[1], ARGV[2], ARGV[3]

-- Before anything is written: it fails if the queue is of another type.
if not redis.call('lindex', queue, 0) then
  return redis.call('hdel', lock, owner) -- nobody waits
elseif redis.call('hexists', lock, owner) == 0 then
  return 0
end
local head = first(queue, timeouts, java)
redis.call('hdel', lock, owner)
local heard = wake(channel, head)
if head and heard == 0 and alone == '1' then
  for _, waiter in ipairs(redis.call('lrange', queue, 1, 100)) do
    if wake(channel, waiter) > 0 then
      break
    end
  end
end
return 1 + heard
