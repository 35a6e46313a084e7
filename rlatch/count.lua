-- count.lua: look at a latch.
--
-- KEYS[1]  the latch: string, the count, from 1 on
-- KEYS[2]  the mark of the last time at which the count was set: string; missing where only the count is asked for
-- KEYS[3]  for how long the latch stays open once it has opened: string; missing as KEYS[2]
--
-- Returns  an array of three strings: the count, 0 for a latch without one; what KEYS[2] and KEYS[3] hold, empty for nothing
local latch, mark, stays = KEYS[1], KEYS[2], KEYS[3]

local text = redis.call('get', latch)
if text and (not string.match(text, '^%d+$') or tonumber(text) >= 1e14) then -- beyond it a script would round
  return redis.error_reply('WRONGTYPE the key holds no count')
end
return { text or '0', mark and redis.call('get', mark) or '', stays and redis.call('get', stays) or '' }
