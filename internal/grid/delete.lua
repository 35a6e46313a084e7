-- delete.lua: delete an object. The server frees its memory in the background.
--
-- KEYS[1]  the object
-- ARGV[1]  what TYPE says of it
--
-- Returns  1 if it was there, 0 if not
local key = KEYS[1]
local kind = ARGV[1]

return guard(key, kind, '', '', '0') or redis.call('unlink', key)
