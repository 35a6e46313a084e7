-- once.lua: act once, however often and however late a call arrives. It stands before the scripts of numbered calls.
--
-- Returns  nothing. It defines once, which answers a call with the array of integers that act returns, the first of them not
--          negative: again, if the call was seen before; with none for a call below the floor; with the negative version of the
--          layout if that is higher than the caller's.
local function once(call, act)
  local version = tonumber(redis.call('hget', call.meta, 'layout') or 0)
  if version > tonumber(call.layout) then
    return {-version}
  end
  local record, number = call.record, call.number
  local floor = tonumber(redis.call('zscore', record, 'floor') or 0)
  if tonumber(number) < floor then
    return {}
  end
  for _, seen in ipairs(redis.call('zrangebyscore', record, number, number)) do
    if seen ~= 'floor' then
      local reply = {}
      for n in string.gmatch(seen, ' (-?%d+)') do
        reply[#reply + 1] = tonumber(n)
      end
      return reply
    end
  end
  local reply = act()
  floor = string.format('%.0f', math.max(floor, tonumber(call.floor)))
  -- This comes first: a Redis that is full lets the rest pass after it.
  redis.call('zremrangebyscore', record, '-inf', '(' .. floor)
  redis.call('zadd', record, floor, 'floor', number, number .. ' ' .. table.concat(reply, ' '))
  redis.call('pexpire', record, 3600000)
  return reply
end

