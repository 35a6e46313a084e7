-- cache.lua: look at a key of a cache.
--
-- KEYS[1]  the key, see grid/rcache/claim.lua
-- ARGV[1]  1 for the result itself, else 0
--
-- Returns  an array
--          kept   value, error or none; empty for nothing
--          bytes  of the result
--          left   for how long it is kept, ms
--          fresh  until it is to be refreshed, ms; 0 if it is old
--          owner  owner id of the load under way; empty for none
--          lease  for how long that has its claim, ms
--          keep   1 if its result is to be kept, else 0
--          data   the result; empty if it was not asked for
local key = KEYS[1]
local whole = ARGV[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local f = redis.call('hmget', key, 'kept', 'data', 'over', 'stale', 'owner', 'lease', 'keep')
local over, lease = tonumber(f[3] or 0), tonumber(f[6] or 0)
local reply = { '', 0, 0, 0, '', 0, 0, '' }
if f[1] and over > now then
  reply[1], reply[2], reply[3] = f[1], #(f[2] or ''), over - now
  reply[4] = math.max(0, tonumber(f[4] or over) - now)
  if whole == '1' then
    reply[8] = f[2] or ''
  end
end
if f[5] and lease > now then
  reply[5], reply[6], reply[7] = f[5], lease - now, f[7] and 1 or 0
end
return reply
