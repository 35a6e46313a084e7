-- release.lua: free a lock, whatever its levels, and wake who waits for it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  channel of its waiters; no key, or there would be no release while its slot moves to another node
--
-- Returns  0  the owner does not hold the lock; nothing was changed
--          n  released; one message sent to ARGV[2], which n - 1 clients received (on a cluster, those of this node)
--         -1  released; the user may not publish to ARGV[2]
local lock = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

-- The owner's field is the only one, so that the key goes with it.
if redis.call('hdel', lock, owner) == 0 then
  return 0
end
local received = redis.pcall('publish', channel, '0')
return type(received) == 'number' and 1 + received or -1
