-- semaphore_available.lua: look at a semaphore.
--
-- KEYS[1]  the semaphore: string, the permits available, which may be below 0
--
-- Returns  the permits available; 0 for a semaphore that does not exist
local semaphore = KEYS[1]

local text = redis.call('get', semaphore)
if text and (not string.match(text, '^-?%d+$') or math.abs(tonumber(text)) >= 1e14) then -- beyond it a script would round
  return redis.error_reply('WRONGTYPE the key holds no number')
end
return tonumber(text or 0)
