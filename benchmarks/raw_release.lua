-- raw_release.lua: delete the lock if it is still the caller's.
--
-- KEYS[1]  the lock: string, its holder's token
-- ARGV[1]  token
--
-- Returns  0  ARGV[1] does not hold the lock
--          1  deleted
local lock, token = KEYS[1], ARGV[1]
if redis.call('GET', lock) ~= token then
  return 0
end
return redis.call('DEL', lock)
