-- permit_release.lua: give permits back that have not expired, and wake who waits for one.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- ARGV[1]  ids of 16 bytes each, one after the other
-- ARGV[2]  channel of the waiters
--
-- Returns  0  none of them was out, or all had expired
--          n  given back; one message sent to ARGV[2] unless none is available even so, which n - 1 clients received (on a
--             cluster, those of this node)
local available, out = KEYS[1], KEYS[2]
local ids, channel = ARGV[1], ARGV[2]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local live = {}
for i = 1, #ids, 16 do
  local id = string.sub(ids, i, i + 15)
  if tonumber(redis.call('zscore', out, id) or 0) > now then
    live[#live + 1] = id
  end
end
if #live == 0 then
  return 0
end
local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
-- An error must mean that nothing was given back. Removing nothing tells whether removing is allowed, before anything
-- changes; and after a script's first write a full memory refuses none.
redis.call('zrem', out, '')
local heard = free + #live > 0 and redis.call('publish', channel, free + #live) or 0
redis.call('incrby', available, #live)
for _, id in ipairs(live) do
  redis.call('zrem', out, id)
end
return 1 + heard
