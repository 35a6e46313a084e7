-- remove.lua: remove an entry of a map, and return its value.
--
-- KEYS[1]  the map: hash
-- ARGV[1]  the entry's key
-- ARGV[2]  any; equal: only if its value is ARGV[3]
-- ARGV[3]  the value
--
-- Returns  an array
--          value    it was removed
--          (empty)  it was not
local key = KEYS[1]
local field, mode, old = ARGV[1], ARGV[2], ARGV[3]

local was = redis.call('hget', key, field)
if not was or mode == 'equal' and was ~= old then
  return {}
end
redis.call('hdel', key, field)
return { was }
