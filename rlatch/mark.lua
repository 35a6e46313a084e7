-- mark.lua: read when the count of a latch was last set, where count.lua cannot: while its slot moves, key by key.
--
-- KEYS[1]  the mark of the last time at which the count was set: string
--
-- Returns  an array of one: what it holds, empty for nothing
local mark = KEYS[1]

return { redis.call('get', mark) or '' }
