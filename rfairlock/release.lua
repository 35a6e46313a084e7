-- release.lua: free a fair lock, whatever its levels, and wake who is next.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- KEYS[4]  channel of the waiters, less ':' and a waiter's id
-- ARGV[1]  owner
-- ARGV[2]  1 to keep the scores as Java does
--
-- Returns  0  the owner does not hold the lock; nothing was changed
--          n  released; one message sent to the next waiter, if there is one, which n - 1 clients heard (on a cluster,
--             those of this node)
local lock, queue, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, java = ARGV[1], ARGV[2]

if redis.call('hexists', lock, owner) == 0 then
  return 0
end
-- Before anything is written: it fails if the queue is of another type.
local head = first(queue, timeouts, java)
redis.call('hdel', lock, owner)
return 1 + wake(channel, head)
