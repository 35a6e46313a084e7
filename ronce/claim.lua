-- claim.lua: claim a key for a run, unless somebody else has, or a result is kept.
--
-- KEYS[1]  the key: hash; owner: owner id of the run that has claimed it, or that has made the result; keep: 1 until Forget,
--          while the run's result is to be kept; kept: value or error, and data: the result, once it is kept
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
--
-- Returns  an array
--          -2              claimed
--          -1              another run has claimed the key, which has no TTL
--          n               another run has claimed it, for n ms at most, unless that is renewed
--          -3, kept, data  a result is kept
local key = KEYS[1]
local owner, lease = ARGV[1], ARGV[2]

local left = redis.call('pttl', key)
if left == -2 then
  redis.call('hset', key, 'owner', owner, 'keep', 1)
  -- A user that may not PEXPIRE must not leave a claim that never expires.
  local expires = redis.pcall('pexpire', key, lease)
  if type(expires) == 'table' then
    redis.call('del', key)
    return expires
  end
  return { -2 }
end
local kept = redis.call('hget', key, 'kept')
if kept then
  return { -3, kept, redis.call('hget', key, 'data') }
end
if redis.call('hexists', key, 'owner') == 0 then
  return redis.error_reply('WRONGTYPE the key holds neither a claim nor a result')
end
return { left }
