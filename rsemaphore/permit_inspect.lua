-- permit_inspect.lua: look at the permits.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
--
-- ARGV[1]  how many permits to look at, at most
--
-- Returns  an array: the number that is available, without those that have expired; how many have expired; how many are out and have
--          not; then for each of these, those that end first before others, its id and how many ms are left of its lease, -1 for ever
local available, out, most = KEYS[1], KEYS[2], tonumber(ARGV[1])

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local expired = redis.call('zcount', out, '-inf', string.format('%.0f', now))
local answer = { free, expired, redis.call('zcard', out) - expired }
local permits = redis.call('zrange', out, expired, expired + most - 1, 'withscores')
for p = 1, #permits, 2 do
  local ends = tonumber(permits[p + 1])
  answer[#answer + 1] = permits[p]
  answer[#answer + 1] = ends < 922337203685477 and ends - now or -1 -- Java's mark of a lease without end
end
return answer
