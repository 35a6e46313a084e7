-- permit_keep.lua: set the lease of a permit that is out and has not expired.
--
-- KEYS[1]  the permits that are out: zset, id -> end of the lease, epoch ms
-- ARGV[1]  id
-- ARGV[2]  lease, ms
-- ARGV[3]  the most that may be left of the lease, ms: where more is, a newer call has set it, and this one does not shorten it
--
-- Returns  1  set
--          0  the permit is not out, or has expired
--          n  n ms are left, which is more than the most; nothing was changed
local out = KEYS[1]
local id, lease, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000

local left = tonumber(redis.call('zscore', out, id) or 0) - math.floor(now)
if left <= 0 then
  return 0
end
if left < lease or left <= most then
  redis.call('zrem', out, '') -- removes nothing; after a script's first write a full memory refuses none
  redis.call('zadd', out, string.format('%.0f', math.ceil(now) + lease), id)
  return 1
end
return left
