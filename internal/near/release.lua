-- release.lua: give one permit to a semaphore, if it exists.
--
-- KEYS[1]  its permits: string, decimal
-- ARGV[1]  channel of its waiters
--
-- Returns  0  there is none
--          1  given
local permits = KEYS[1]
local channel = ARGV[1]

if redis.call('exists', permits) == 0 then
  return 0
end
redis.call('publish', channel, redis.call('incr', permits))
return 1
