-- stats.lua: count messages by state.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  dead: sorted set of dead letters
-- KEYS[4]  meta: hash
-- ARGV[1]  the caller's version of the layout
--
-- Returns  an array: delayed, ready, in flight, dead; 1 if the queue is paused, or 0; or one negative number, the
--          layout's version, if it is higher than the caller's
local due, flight, dead, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local layout = ARGV[1]

local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > tonumber(layout) then
  return {-version}
end
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local ready = redis.call('zcount', due, '-inf', now)
local expired = redis.call('zcount', flight, '-inf', now)
local delayed = redis.call('zcard', due) - ready
local held = redis.call('zcard', flight) - expired
return {delayed, ready + expired, held, redis.call('zcard', dead), redis.call('hexists', meta, 'paused')}
