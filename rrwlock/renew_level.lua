-- renew_level.lua: set the lease of a reader's level, not to less than it is, where the level is in another place than its lock.
--
-- KEYS[1]  the level: string, which lives as long as it
-- ARGV[1]  lease, ms
--
-- Returns  an array: empty, or with the integer 1 if the level has expired
local level = KEYS[1]
local lease = tonumber(ARGV[1])

local left = redis.call('pttl', level)
if left == -2 then
  return { 1 }
end
if left < lease then
  redis.call('pexpire', level, lease)
end
return {}
