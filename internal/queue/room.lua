-- room.lua: notify producers that wait for room in a queue with a capacity. It stands before the scripts that make room.
--
-- full in the meta key is how many places are to be free before one of the offers that were refused may fit.
--
-- Returns  nothing. It defines refused, which notes how many places an offer lacks; and freed, which counts n places, and notifies all
--          who wait when there are as many. It comes before what the script writes: an ACL may forbid to publish.
local function refused(meta, lacks)
  redis.call('hset', meta, 'full', math.min(tonumber(redis.call('hget', meta, 'full') or lacks), lacks))
end

local function freed(meta, channel, n)
  local lacks = tonumber(redis.call('hget', meta, 'full') or 0)
  if lacks > n then
    redis.call('hset', meta, 'full', string.format('%.0f', lacks - n))
  elseif lacks > 0 then
    redis.call('publish', channel .. 'room', '')
    redis.call('hdel', meta, 'full')
  end
end

