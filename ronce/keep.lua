-- keep.lua: turn a claim into its result, unless Forget came meanwhile: then release it. Wake who waits for it.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  owner
-- ARGV[2]  value or error
-- ARGV[3]  the result
-- ARGV[4]  for how long it is kept, ms
-- ARGV[5]  channel of those who wait
--
-- Returns  0  the owner does not have the claim, or not any more; nothing was changed
--          n  the result is kept, or the claim is released; one message sent to ARGV[5], which n - 1 clients received (on a
--             cluster, those of this node); 1 without a message if an earlier call has done so
--         -1  likewise; the user may not publish to ARGV[5]
local key = KEYS[1]
local owner, kept, data, ttl, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('hget', key, 'owner') ~= owner then
  return 0
end
if redis.call('hexists', key, 'kept') == 1 then
  return 1
end
if redis.call('hexists', key, 'keep') == 1 then
  redis.call('hset', key, 'kept', kept, 'data', data) -- a full Redis refuses it before anything has changed
  local expires = redis.pcall('pexpire', key, ttl)
  if type(expires) == 'table' then
    redis.call('hdel', key, 'kept', 'data')
    return expires
  end
else
  redis.call('del', key)
end
local received = redis.pcall('publish', channel, '1')
return type(received) == 'number' and 1 + received or -1
