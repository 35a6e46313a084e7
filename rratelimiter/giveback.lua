-- giveback.lua: give back reserved tokens, unless others were taken after them.
--
-- KEYS[1]  the state, see take.lua
-- ARGV[1]  what it was after the reservation
-- ARGV[2]  how long the reserved tokens need to come back, whole µs
-- ARGV[3]  the rest of that, parts
-- ARGV[4]  the parts of a µs
--
-- Returns  0  others were taken since, or all tokens are back
--          1  they are given back
local key = KEYS[1]
local reserved, cost, costRest, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

if redis.call('get', key) ~= reserved then
  return 0
end
local back, rest = string.match(reserved, '^(%d+) (%d+)')
back, rest = (back or reserved) - cost, (rest or 0) - costRest
if rest < 0 then
  back, rest = back - 1, rest + count
end
local time = redis.call('time')
local used = back - (time[1] * 1000000 + time[2])
if used < 0 then
  redis.call('del', key)
  return 1
end
local state = back
if rest > 0 then
  state = string.format('%.0f %.0f %.0f', back, rest, count) -- tostring would round
end
redis.call('set', key, state, 'px', math.ceil((used + 1) / 1000))
return 1
