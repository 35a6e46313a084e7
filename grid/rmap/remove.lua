-- remove.lua: remove an entry of a map, and return its value.
--
-- KEYS[1]  the map: hash
-- ARGV[1]  the entry's key
-- ARGV[2]  any; equal: only if its value is ARGV[3]
-- ARGV[3]  the value
-- ARGV[4]  channel of the map, if it has a near cache
-- ARGV[5]  the message, which is published if the entry is removed
--
-- Returns  an array
--          value    it was removed
--          (empty)  it was not
local key = KEYS[1]
local field, mode, old, channel, message = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local was = redis.call('hget', key, field)
if not was or mode == 'equal' and was ~= old then
  return {}
end
if message then
  redis.call('publish', channel, message)
end
redis.call('hdel', key, field)
return { was }
