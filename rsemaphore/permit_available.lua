-- permit_available.lua: count the permits that are available.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
--
-- Returns  their number, those that have expired included; 0 if there is no such semaphore, negative while more are out
--          than there may be
local available, out = KEYS[1], KEYS[2]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
return free + redis.call('zcount', out, 0, string.format('%.0f', now))
