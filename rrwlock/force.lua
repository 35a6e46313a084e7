-- force.lua: free a lock whoever holds it, in whichever mode, and wake who waits for it.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  channel of its waiters
--
-- Returns  1  released; one message sent to ARGV[1]
--          0  the lock was free
--         -1  released; the user may not publish to ARGV[1]
local lock = KEYS[1]
local channel = ARGV[1]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
if not mode then
  return 0
end
-- The keys of readers' levels are left to expire: without their fields they mean nothing.
redis.call('del', lock)
local received = redis.pcall('publish', channel, mode == 'write' and '1' or '0')
return type(received) == 'number' and 1 or -1
