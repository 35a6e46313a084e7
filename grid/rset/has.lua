-- has.lua: look for a member that is not over.
--
-- KEYS[1]  the set: sorted set, see put.lua
-- ARGV[1]  the member
--
-- Returns  1 if it is there, 0 if not
local key = KEYS[1]
local member = ARGV[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = redis.call('zscore', key, member)
return expiry and tonumber(expiry) > now and 1 or 0
