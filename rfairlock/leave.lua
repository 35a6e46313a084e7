-- leave.lua: take a waiter that gave up out of a fair lock's queue, and free the lock if it was granted meanwhile.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- KEYS[4]  channel of the waiters, less ':' and a waiter's id
-- ARGV[1]  the waiter
-- ARGV[2]  how long it was good, ms
-- ARGV[3]  1 to keep the scores as Java does: those behind it are lowered
--
-- Returns  0  the waiter did not hold the lock
--          n  it did, and released it; n - 1 clients heard the message to the next one
local lock, queue, timeouts, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, good, java = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local held = redis.call('hdel', lock, owner)
if java == '1' then
  local behind = false
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    if behind then
      redis.call('zincrby', timeouts, -good, waiter)
    end
    behind = behind or waiter == owner
  end
end
redis.call('zrem', timeouts, owner)
redis.call('lrem', queue, 0, owner)
-- It may have been its turn, and the message to it lost with it.
if redis.call('exists', lock) == 1 then
  return held
end
return held * (1 + wake(channel, (first(queue, timeouts, java))))
