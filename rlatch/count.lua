-- count.lua: look at a latch.
--
-- KEYS[1]  the latch: string, the count, from 1 on
-- KEYS[2]  the mark of the last time at which the count was set: string; missing where only the count is asked for
--
-- Returns  an array of two strings: the count, 0 for a latch without one; what KEYS[2] holds, empty for nothing
local latch, mark = KEYS[1], KEYS[2]

local text = redis.call('get', latch)
if text and (not string.match(text, '^%d+$') or tonumber(text) >= 1e14) then -- beyond it a script would round
  return redis.error_reply('WRONGTYPE the key holds no count')
end
return { text or '0', mark and redis.call('get', mark) or '' }
