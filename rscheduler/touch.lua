-- touch.lua: note for how long a process counts as running, and draw tokens. It stands before scripts that such processes call.
--
-- Returns  nothing. It defines touch, which returns the time, µs, and since when at least one process has been running at all times, µs.
--          A length of 0 means that the process has stopped. It defines draw, which returns a token that is higher than those before.
local function touch(alive, meta, process, length)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  redis.call('zremrangebyscore', alive, '-inf', string.format('%.0f', now))
  local up = redis.call('hget', meta, 'up')
  if not up or tonumber(up) > now or redis.call('exists', alive) == 0 then -- later than now if the clock has stepped back
    up = string.format('%.0f', now)
    redis.call('hset', meta, 'up', up)
  end
  if length > 0 then
    redis.call('zadd', alive, string.format('%.0f', now + length), process)
  else
    redis.call('zrem', alive, process)
  end
  return now, tonumber(up)
end

local function draw(meta, now)
  local token = string.format('%.0f', math.max(now, tonumber(redis.call('hget', meta, 'token') or 0) + 1))
  redis.call('hset', meta, 'token', token)
  return token
end

