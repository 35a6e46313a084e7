-- plan.lua: set the next tick of a job. It stands before the scripts that do so.
--
-- Returns  nothing. It defines plan, which sets the next tick, puts its message into the queue, and writes the fields that it is given
--          together with next. A tick that is nothing is none: the job does not come any more. One that is ? is seen to by a process that
--          knows the schedule. The index keeps the time of one that is known. What may be refused comes before the fields.
local function plan(queue, place, tick, set)
  local jobs, job, name = place.jobs, place.job, place.name
  local at, due = tonumber(tick.next), tick.next == '?' and tick.now or math.huge
  if at then due = at + tonumber(tick.jitter) end
  redis.call('zadd', jobs, tick.known and 'nx' or 'ch', due == math.huge and '+inf' or string.format('%.0f', due), name)
  if at and tick.put then put(queue, name .. '@' .. tick.next, due, string.format('%.0f', due), tick.now) end
  redis.call('hset', job, 'next', tick.next, unpack(set))
end
