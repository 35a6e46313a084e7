-- reschedule.lua: set anew when a message that waits may be taken.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[3]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  id
-- ARGV[2]  delay from now, µs
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; 1 if it was set, 0 if no message of this id waits
local due, bodies, waiters = KEYS[1], KEYS[2], KEYS[3]
local id, delay = ARGV[1], tonumber(ARGV[2])

local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
if not redis.call('zscore', due, member) then
  return {0, 0}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
redis.call('zadd', due, string.format('%.0f', delay > 0 and now + delay + 1 or now), member)
return {redis.call('exists', waiters), 1}
