-- once.lua: act once under a number, however often and however late a call arrives. It stands before the scripts of numbered calls.
--
-- Returns  nothing. It defines once, which returns the integers that act returns, the first of them not negative, or has returned
--          under this number before; nothing for a number below the last; the negative version of a layout above the caller's.
local function once(call, act)
  local version = tonumber(call.version or redis.call('hget', call.meta, 'layout') or 0)
  if version > tonumber(call.layout) then
    return {-version}
  end
  local text = redis.call('get', call.record)
  local seen = tonumber(string.match(text or '0', '^%d+'))
  if seen >= tonumber(call.number) then
    local reply = {}
    for n in string.gmatch(seen == tonumber(call.number) and text or '', ' (-?%d+)') do
      reply[#reply + 1] = tonumber(n)
    end
    return reply
  end
  redis.call('set', call.record, '', text and 'nx' or 'xx') -- does nothing, and fails if SET would after act
  local reply = act()
  redis.call('set', call.record, call.number .. ' ' .. table.concat(reply, ' '), 'px', 3600000)
  return reply
end

