-- enter.lua: write down the value of a candidate.
--
-- KEYS[1]  the candidates: hash, see lead.lua
-- ARGV[1]  owner
-- ARGV[2]  value
-- ARGV[3]  how long it is good, ms
--
-- Returns  1
local candidates = KEYS[1]
local owner, value, good = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = math.max(redis.call('pttl', candidates), good)
redis.call('pexpire', candidates, ttl) -- it may not be allowed
redis.call('hset', candidates, owner, string.format('%.0f', now + good) .. ' ' .. value) -- %s may cut it at a NUL
redis.call('pexpire', candidates, ttl)
return 1
