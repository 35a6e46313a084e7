-- inspect.lua: look at a lock.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner; may be empty
--
-- Returns  an array of two integers: the lease left in ms, -2 when the lock is free, -1 when it has no TTL; the levels
--          that the owner holds
local lock = KEYS[1]
local owner = ARGV[1]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local levels = tonumber(redis.call('hget', lock, owner) or 0) or 0
return { redis.call('pttl', lock), levels }
