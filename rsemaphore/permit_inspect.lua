-- permit_inspect.lua: look at the permits.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
--
-- Returns  an array: the number that is available, without those that have expired; then for each one that is out, those that end
--          first before others, its id and how many ms are left of its lease, 0 if it has expired, -1 for ever
local available, out = KEYS[1], KEYS[2]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local answer, permits = { free }, redis.call('zrange', out, 0, -1, 'withscores')
for p = 1, #permits, 2 do
  local ends = tonumber(permits[p + 1])
  answer[#answer + 1] = permits[p]
  answer[#answer + 1] = ends < 922337203685477 and math.max(ends - now, 0) or -1 -- Java's mark of a lease without end
end
return answer
