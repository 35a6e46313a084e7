-- reschedule.lua: set anew when a message that waits may be taken.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[4]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[6]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  id
-- ARGV[5]  delay from now, µs
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; 1 if it was set, 0 if no message of this id waits; or as
--          once.lua says
local meta, record, due, flight, bodies, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, number, floor, id, delay = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  if not redis.call('zscore', due, member) then
    local ends = redis.call('zscore', flight, member)
    if not ends or tonumber(ends) > now then
      return {0, 0}
    end
    redis.call('zrem', flight, member) -- its claim ran out
  end
  redis.call('zadd', due, string.format('%.0f', delay > 0 and now + delay + 1 or now), member)
  return {redis.call('exists', waiters), 1}
end)
