-- acquire.lua: take a lock if it is free.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  an owner from whom the lock passes to the new one if that owner holds it; empty for none
-- ARGV[4]  1 to look at the type of a busy key
--
-- Returns  -2  acquired; the owner holds one level
--          -1  busy, and the key has no TTL
--           n  busy for n ms at most, unless it is renewed
local lock = KEYS[1]
local owner, lease, from, verify = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- PTTL answers both whether the lock is free and until when it is not: unless the type is asked for, the busy path costs one command.
local left = redis.call('pttl', lock)
if left ~= -2 and (from ~= '' or verify == '1' or left == -1) then
  -- An error for what is no hash.
  if redis.call('hexists', lock, 'mode') == 1 then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
  end
  if from ~= '' and redis.call('hexists', lock, from) == 1 then
    -- All that a user may not be allowed comes before the first write that counts. The key must stay, and its TTL with it.
    redis.call('pexpire', lock, lease)
    redis.call('hdel', lock, '')
    redis.call('hset', lock, owner, 1)
    redis.call('hdel', lock, from)
    left = -2
  end
end
if left == -2 then
  redis.call('hset', lock, owner, 1)
  -- A user that may not PEXPIRE must not leave a lock that never expires.
  local expires = redis.pcall('pexpire', lock, lease)
  if type(expires) == 'table' then
    redis.call('hdel', lock, owner)
    return expires
  end
end
return left
