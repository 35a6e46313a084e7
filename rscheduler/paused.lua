-- paused.lua: say whether a job is paused, or was at one of some times. It stands before begin.lua.
--
-- Returns  nothing. It defines was_paused, which returns true or false, and the end of the pause, µs, if it is over.
local function was_paused(paused, pauses, job, times)
  if redis.call('hexists', paused, job) == 1 then
    return true
  end
  for from, till in string.gmatch(redis.call('hget', pauses, job) or '', '(%d+)%-(%d+)') do
    for _, time in ipairs(times) do
      if tonumber(from) <= time and time < tonumber(till) then
        return true, tonumber(till)
      end
    end
  end
  return false
end

