-- release.lua: give up a claim without a result, and wake who waits for it.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  owner
-- ARGV[2]  channel of those who wait
--
-- Returns  0  the owner does not have the claim; nothing was changed
--          n  released; one message sent to ARGV[2], which n - 1 clients received (on a cluster, those of this node)
--         -1  released; the user may not publish to ARGV[2]
local key = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

if redis.call('hget', key, 'owner') ~= owner then
  return 0
end
redis.call('hdel', key, 'owner', 'lease', 'keep')
local received = redis.pcall('publish', channel, '1')
return type(received) == 'number' and 1 + received or -1
