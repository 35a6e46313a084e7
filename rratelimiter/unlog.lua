-- unlog.lua: give back reserved tokens of a window, unless others were taken after them.
--
-- KEYS[1]  the log, see window.lua
-- ARGV[1]  the entry of the reservation
--
-- Returns  0  others were taken since, or all tokens are back
--          1  they are given back
local log, entry = KEYS[1], ARGV[1]

if redis.call('lindex', log, -1) ~= entry then
  return 0
end
redis.call('ltrim', log, 0, -2)
return 1
