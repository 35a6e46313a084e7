-- giveback.lua: give back reserved tokens, unless others were taken after them.
--
-- KEYS[1]  the state, see take.lua
-- ARGV[1]  when all tokens are back after the reservation, µs of the server's clock
-- ARGV[2]  the rest of that, parts
-- ARGV[3]  how long the reserved tokens need to come back, whole µs
-- ARGV[4]  the rest of that, parts
-- ARGV[5]  the parts of a µs
--
-- Returns  0  others were taken since, or all tokens are back
--          1  they are given back
local key = KEYS[1]
local back, rest, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local costRest, count = tonumber(ARGV[4]), tonumber(ARGV[5])

local function state()
  if rest > 0 then
    return string.format('%.0f %.0f %.0f', back, rest, count)
  end
  return string.format('%.0f', back)
end

if redis.call('get', key) ~= state() then
  return 0
end
back, rest = back - cost, rest - costRest
if rest < 0 then
  back, rest = back - 1, rest + count
end
local time = redis.call('time')
local used = back - (time[1] * 1000000 + time[2])
if used < 0 then
  redis.call('del', key)
  return 1
end
redis.call('set', key, state(), 'px', string.format('%.0f', math.ceil((used + 1) / 1000)))
return 1
