-- leave.lua: forget the value of a candidate that gave up.
--
-- KEYS[1]  the candidates: hash, see lead.lua
-- ARGV[1]  owner
--
-- Returns  1  it was there
--          0  it was not
local candidates, owner = KEYS[1], ARGV[1]

return redis.call('hdel', candidates, owner)
