-- read.lua: read an entry of a map on the master.
--
-- KEYS[1]  the map: hash
-- ARGV[1]  the entry's key
--
-- Returns  an array
--          the value, or nothing
local key = KEYS[1]
local field = ARGV[1]

return { redis.call('hget', key, field) or nil }
