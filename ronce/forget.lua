-- forget.lua: delete a result, or have that of the present run not be kept.
--
-- KEYS[1]  the key, see claim.lua
--
-- Returns  1 if there was either, 0 if not
local key = KEYS[1]

if redis.call('hexists', key, 'kept') == 1 then
  return redis.call('del', key)
end
return redis.call('hdel', key, 'keep') -- a full Redis allows it
