-- idle.lua: say for how long an empty queue is remembered. It stands before the scripts that empty one.
--
-- Returns  nothing. It defines lifetime, which returns the time to live in ms of the meta key of a queue without messages: a day after
--          the end of its pause, and after the time until which claims count for its rate; false if the pause has no end.
local function lifetime(meta, now, paused)
  local head = redis.call('hmget', meta, 'paused', 'rate')
  paused = paused or head[1]
  local ends = math.max(tonumber(paused or 0), tonumber(head[2] or 0), tonumber(now))
  return paused ~= '1' and string.format('%.0f', 86400000 + (ends - now) / 1000)
end

