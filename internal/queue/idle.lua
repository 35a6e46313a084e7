-- idle.lua: say for how long an empty queue is remembered. It stands before the scripts that empty one.
--
-- Returns  nothing. It defines lifetime, which returns the time to live in ms of the meta key of a queue without messages: a day after
--          the end of its pause; false if the pause has no end.
local function lifetime(meta, now, paused)
  paused = paused or redis.call('hget', meta, 'paused')
  return paused ~= '1' and string.format('%.0f', 86400000 + math.max(0, tonumber(paused or 0) - now) / 1000)
end

