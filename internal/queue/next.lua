-- next.lua: say when there is something to look at. It stands after lanes.lua, before the scripts that have a client look in then.
--
-- Returns  nothing. It defines earliest, which returns the time, µs, of the first message that is due, of the tasks in counts if there is
--          one, or the first claim that runs out, whichever comes first; nothing if there is neither.
local function earliest(due, flight, counts)
  local first = first_due(due, nil, nil, counts)
  local expiry = redis.call('zrange', flight, 0, 0, 'withscores')[2]
  return (first or expiry) and math.min(tonumber(first or expiry), tonumber(expiry or first))
end

