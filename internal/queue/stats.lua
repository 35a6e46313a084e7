-- stats.lua: count messages by state, and say for how long one has waited.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  dead: sorted set of dead letters
-- KEYS[4]  meta: hash
-- KEYS[5]  errors: hash, id -> text of the last error
-- ARGV[1]  the caller's version of the layout
--
-- Returns  an array: delayed, ready, in flight, dead; 0 if the queue is not paused, 1 if its pause has no end, or when it ends, µs; how
--          many of the first three have an error; for how long the first one has been due that waits, µs, or 0; or one negative number,
--          the layout's version, if it is higher than the caller's
local due, flight, dead, meta, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local layout = ARGV[1]

local head = redis.call('hmget', meta, 'layout', 'paused')
local version, paused = tonumber(head[1] or 0), tonumber(head[2] or 0)
if version > tonumber(layout) then
  return {-version}
end
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
if paused > 1 and paused <= tonumber(now) then
  paused = 0
end
local ready = redis.call('zcount', due, '-inf', now)
local expired = redis.call('zcount', flight, '-inf', now)
local oldest = tonumber(now)
if ready > 0 then
  oldest = tonumber(redis.call('zrange', due, 0, 0, 'withscores')[2])
end
if expired > 0 then
  oldest = math.min(oldest, tonumber(redis.call('zrange', flight, 0, 0, 'withscores')[2]))
end
local delayed = redis.call('zcard', due) - ready
local held = redis.call('zcard', flight) - expired
local given_up = redis.call('zcard', dead) -- each of which has an error
local failed = math.max(0, redis.call('hlen', errors) - given_up) -- their texts may have been evicted
return {delayed, ready + expired, held, given_up, paused, failed, now - oldest}
