-- force.lua: free a lock whoever holds it, and wake who waits for it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  channel of its waiters
--
-- Returns  1  released; one message sent to KEYS[2]
--          0  the lock was free
local lock, channel = KEYS[1], KEYS[2]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
if redis.call('del', lock) == 0 then
  return 0
end
redis.call('publish', channel, '0')
return 1
