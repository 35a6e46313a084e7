-- force.lua: free a lock whoever holds it, and wake who waits for it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  channel of its waiters; no key, as in release.lua
--
-- Returns  1  released; one message sent to ARGV[1]
--          0  the lock was free
--         -1  released; the user may not publish to ARGV[1]
local lock = KEYS[1]
local channel = ARGV[1]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
if redis.call('del', lock) == 0 then
  return 0
end
return type(redis.pcall('publish', channel, '0')) == 'number' and 1 or -1
