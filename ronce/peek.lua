-- peek.lua: look for a result.
--
-- KEYS[1]  the key, see claim.lua
--
-- Returns  an array
--          kept, data  a result is kept: value or error, and the result
--          (empty)     none is
local key = KEYS[1]

local kept = redis.call('hget', key, 'kept')
if kept then
  return { kept, redis.call('hget', key, 'data') }
end
return {}
