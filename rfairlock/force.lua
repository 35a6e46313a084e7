-- force.lua: free a fair lock whoever holds it, and wake who is next.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- KEYS[4]  channel of the waiters, less ':' and a waiter's id
-- ARGV[1]  1 to keep the scores as Java does
--
-- Returns  1  released; one message sent to the next waiter, if there is one
--          0  the lock was free
local lock, queue, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local java = ARGV[1]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local head = first(queue, timeouts, java)
if redis.call('del', lock) == 0 then
  return 0
end
wake(channel, head)
return 1
