-- permit_available.lua: count the permits that are available.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- KEYS[3]  channel of the waiters
--
-- Returns  their number; 0 if there is no such semaphore, negative while more are out than there may be
local available, out, channel = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local expired = redis.call('zcount', out, 0, string.format('%.0f', now))
local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
if expired == 0 then
  return free
end
local back = math.min(expired, 10000)
free = redis.call('incrby', available, back)
redis.call('zremrangebyrank', out, 0, back - 1)
if free > 0 then
  redis.call('publish', channel, free)
end
return free + expired - back
