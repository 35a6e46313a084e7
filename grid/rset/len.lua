-- len.lua: count the members that are not over.
--
-- KEYS[1]  the set: sorted set, see put.lua
--
-- Returns  how many there are
local key = KEYS[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('zcount', key, string.format('(%.0f', now), '+inf')
