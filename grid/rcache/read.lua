-- read.lua: look for a result, on the master.
--
-- KEYS[1]  the key, see claim.lua
--
-- Returns  an array
--          kept, data, ms, due  a result is kept: value, error or none, and the result; for how long it is fresh, 0 if it is not; 1
--                               if nobody refreshes it although it is not fresh, else 0
--          (empty)              none is
local key = KEYS[1]

local f = redis.call('hmget', key, 'kept', 'data', 'over', 'stale')
if not f[1] then
  return {}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local over = tonumber(f[3])
if over <= now then
  return {}
end
local stale = tonumber(f[4] or over)
if stale > now then
  return { f[1], f[2], stale - now, 0 }
end
local r = redis.call('hmget', key, 'lease', 'at')
local due = tonumber(r[1] or 0) <= now and tonumber(r[2] or 0) + 1000 <= now
return { f[1], f[2], 0, due and 1 or 0 }
