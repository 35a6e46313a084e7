-- leave.lua: take a waiter that gave up out of a fair lock's queue, and free the lock if it was granted meanwhile.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- ARGV[1]  channel of the waiters, less ':' and a waiter's id
-- ARGV[2]  the waiter
-- ARGV[3]  how long it was good, ms
-- ARGV[4]  1 to keep the scores as Java does: those behind it are lowered
--
-- Returns  0  the waiter did not hold the lock
--          n  it did, and released it; n - 1 clients received the message to the next one
--         -1  it did, and released it; the user may not publish to that channel
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local channel, owner, good, java = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

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
local received = wake(channel, (first(queue, timeouts, java)))
return held * (received < 0 and -1 or 1 + received)
