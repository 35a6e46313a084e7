-- force.lua: free a fair lock whoever holds it, and wake who is next.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- ARGV[1]  channel of the waiters, less ':' and a waiter's id
-- ARGV[2]  1 to keep the scores as Java does
--
-- Returns  1  released; one message sent to the next waiter, if there is one
--          0  the lock was free
--         -1  released; the user may not publish to that channel
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local channel, java = ARGV[1], ARGV[2]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local head = first(queue, timeouts, java)
if redis.call('del', lock) == 0 then
  return 0
end
return wake(channel, head) < 0 and -1 or 1
