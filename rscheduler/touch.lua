-- touch.lua: note that a process runs the scheduler. It stands before the scripts of processes that do.
--
-- Returns  nothing. It defines touch, which returns the time in µs, and that since which one process or another has run it without a gap.
local function touch(alive, meta, process, length)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  redis.call('zremrangebyscore', alive, '-inf', string.format('%.0f', now))
  local up = redis.call('hget', meta, 'up')
  if not up or redis.call('exists', alive) == 0 then
    up = string.format('%.0f', now)
    redis.call('hset', meta, 'up', up)
  end
  redis.call('zadd', alive, string.format('%.0f', now + length), process)
  return now, tonumber(up)
end

