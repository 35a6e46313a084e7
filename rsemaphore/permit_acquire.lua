-- permit_acquire.lua: take permits, as many as are asked for or none, each under an id and a lease of its own.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- ARGV[1]  ids of 16 bytes each, one after the other
-- ARGV[2]  lease, ms
-- ARGV[3]  channel of the waiters
--
-- Returns  -2  acquired
--          -1  refused, and no lease has an end
--           n  refused; the first lease ends in n ms
local available, out = KEYS[1], KEYS[2]
local ids, lease, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000

local free = tonumber(redis.call('get', available) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
-- What has expired comes back first. The lowest ranks are what ended first, so that no ids need to be listed.
local expired = math.min(redis.call('zcount', out, 0, string.format('%.0f', math.floor(now))), 10000)
if expired > 0 then
  -- Removing nothing tells whether removing is allowed, before anything changes; after it a full memory refuses nothing.
  redis.call('zremrangebyrank', out, 1, 0)
  free = redis.call('incrby', available, expired)
  redis.call('zremrangebyrank', out, 0, expired - 1)
  if free > 0 then
    redis.pcall('publish', channel, free) -- waiters that get no message ask again at the end of the lease
  end
end

if redis.call('zscore', out, string.sub(ids, 1, 16)) then
  return -2 -- a second run of the same call
end
local count = #ids / 16
if free >= count then
  local left = redis.call('pttl', available)
  if left > 0 then redis.call('pexpire', out, left) end -- refused now, or not at all
  redis.call('incrby', available, -count)
  local ends = string.format('%.0f', math.ceil(now) + lease)
  for i = 1, #ids, 16 do
    local added = redis.pcall('zadd', out, ends, string.sub(ids, i, i + 15))
    if type(added) == 'table' then -- refused, as the first one
      redis.call('incrby', available, count)
      return added
    end
  end
  if left > 0 then redis.call('pexpire', out, left) end
  return -2
end
local first = redis.call('zrange', out, 0, 0, 'withscores')
local ends = tonumber(first[2] or 922337203685477)
if ends >= 922337203685477 then -- Java's mark of a lease without end
  return -1
end
return math.max(math.ceil(ends - now), 0)
