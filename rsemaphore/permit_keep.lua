-- permit_keep.lua: set the lease of a permit that is out and has not expired.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- KEYS[3]  channel of the waiters
-- ARGV[1]  id
-- ARGV[2]  lease, ms
-- ARGV[3]  the most that may be left of the lease, ms: where more is, the call is late, and does not shorten what a newer one set
--
-- Returns  1  set
--          0  the permit is not out, or has expired
local available, out, channel = KEYS[1], KEYS[2], KEYS[3]
local id, lease, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000

local expired = math.min(redis.call('zcount', out, 0, string.format('%.0f', math.floor(now))), 10000)
if expired > 0 then
  local free = redis.call('incrby', available, expired)
  redis.call('zremrangebyrank', out, 0, expired - 1)
  if free > 0 then
    redis.call('publish', channel, free)
  end
end
local left = tonumber(redis.call('zscore', out, id) or 0) - math.floor(now)
if left <= 0 then
  return 0
end
if left < lease or left <= most then
  redis.call('zadd', out, string.format('%.0f', math.ceil(now) + lease), id)
end
return 1
