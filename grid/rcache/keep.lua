-- keep.lua: turn a claim into its result, unless Invalidate or Set came meanwhile: then release it. Wake who waits for it.
--
-- KEYS[1]  the key, see claim.lua
-- ARGV[1]  owner
-- ARGV[2]  value, error or none; failed for an error that is only for those who waited
-- ARGV[3]  the result
-- ARGV[4]  for how long it is kept, ms
-- ARGV[5]  for how long it is fresh, ms; 0 for all that time
-- ARGV[6]  channel of those who wait
--
-- Returns  0  the owner does not have the claim, or not any more; nothing was changed
--          n  the result is kept, or the claim is released; one message sent to ARGV[6], which n - 1 clients received (on a
--             cluster, those of this node); 1 without a message if an earlier call has kept it
--         -1  likewise; the user may not publish to ARGV[6]
local key = KEYS[1]
local owner, kept, data, ttl, fresh, channel = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local e = look(key)
if e.made == owner then
  return 1
elseif e.owner ~= owner then
  return 0
end
e.lease = 0
local refused
if e.keep and kept == 'failed' then
  e.at = now
  redis.call('hset', key, 'error', data, 'at', now, 'made', owner)
  refused = expire(key, e, 'error', 'at', 'made')
elseif e.keep then
  e.over, e.at = now + ttl, 0
  redis.call('hset', key, 'kept', kept, 'data', data, 'over', e.over, 'stale', fresh > 0 and now + fresh or e.over, 'made', owner)
  refused = expire(key, e, 'kept', 'data', 'over', 'stale', 'made')
  if not refused then
    redis.call('hdel', key, 'error', 'at')
  end
end
if refused then
  return refused
end
redis.call('hdel', key, 'owner', 'lease', 'keep')
local received = redis.pcall('publish', channel, '1')
return type(received) == 'number' and 1 + received or -1
