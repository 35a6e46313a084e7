-- read.lua: read the value of a bucket on the master.
--
-- KEYS[1]  the bucket: string
--
-- Returns  an array
--          the value, or nothing
local key = KEYS[1]

return { redis.call('get', key) or nil }
