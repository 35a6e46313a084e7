-- permit_release.lua: give permits back that have not expired, and wake who waits for one.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- KEYS[3]  channel of the waiters
-- ARGV[1]  ids of 16 bytes each, one after the other
--
-- Returns  0  none of them was out, or all had expired; those are back now
--          n  given back; one message sent to KEYS[3] unless none is available even so, which n - 1 clients heard (on a
--             cluster, those of this node)
local available, out, channel = KEYS[1], KEYS[2], KEYS[3]
local ids = ARGV[1]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local live = {}
for i = 1, #ids, 16 do
  local id = string.sub(ids, i, i + 15)
  if tonumber(redis.call('zscore', out, id) or 0) > now then
    live[#live + 1] = id
  end
end
-- The others, if they are out, are among what has expired and comes back with this call.
local expired = math.min(redis.call('zcount', out, 0, string.format('%.0f', now)), 10000)
if #live + expired == 0 then
  return 0
end
local free = redis.call('incrby', available, #live + expired) -- first: it fails on what is no number
if expired > 0 then
  redis.call('zremrangebyrank', out, 0, expired - 1)
end
for _, id in ipairs(live) do
  redis.call('zrem', out, id)
end
local heard = 0
if free > 0 then
  heard = redis.call('publish', channel, free)
end
if #live == 0 then
  return 0
end
return 1 + heard
