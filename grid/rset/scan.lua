-- scan.lua: read a step of a set of members that expire.
--
-- KEYS[1]  the set: sorted set, see put.lua
-- ARGV[1]  cursor
-- ARGV[2]  about how many elements
--
-- Returns  an array
--          the next cursor, and an array of members that are not over
local key = KEYS[1]
local cursor, count = ARGV[1], ARGV[2]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local step = redis.call('zscan', key, cursor, 'count', count)
local live = {}
for i = 1, #step[2], 2 do
  if tonumber(step[2][i + 1]) > now then
    live[#live + 1] = step[2][i]
  end
end
return { step[1], live }
