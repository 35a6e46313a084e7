-- plan.lua: set the next tick of a job, and put its message into the queue. It stands before the scripts that do so.
--
-- Returns  nothing. It defines plan, which writes the fields of the job that it is given together with next. A tick that is nothing is
--          none: the job does not come any more. One that is ? is seen to by a process that knows the schedule. What may be refused comes
--          before the fields.
local function plan(queue, place, tick, fields)
  local jobs, job, name = place.jobs, place.job, place.name
  local at = tonumber(tick.next)
  redis.call('zadd', jobs, at and tick.next or tick.next == '?' and string.format('%.0f', tick.now) or '+inf', name)
  if at and tick.put then
    local due = at + tonumber(tick.jitter)
    put(queue, name .. '@' .. tick.next, due, string.format('%.0f', due), tick.now)
  end
  redis.call('hset', job, 'next', tick.next, unpack(fields))
end
