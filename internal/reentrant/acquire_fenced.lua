-- acquire_fenced.lua: take a lock if it is free, and draw a fencing token with it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the last token drawn: string
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  an owner from whom the lock passes to the new one if that owner holds it; empty for none
-- ARGV[4]  1 to look at the type of a busy key
-- ARGV[5]  how long the last token is kept, ms; 0 for good
--
-- Returns  an array of two integers: as acquire.lua; the token, or 0
local lock, last = KEYS[1], KEYS[2]
local owner, lease, from, verify, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local left, passes = redis.call('pttl', lock), false
if left ~= -2 and (from ~= '' or verify == '1' or left == -1) then
  -- An error for what is no hash.
  if redis.call('hexists', lock, 'mode') == 1 then
    return redis.error_reply('WRONGTYPE the key holds a read-write lock')
  end
  passes = from ~= '' and redis.call('hexists', lock, from) == 1
end
if left ~= -2 and not passes then
  return { left, 0 }
end
local time = redis.call('time')
local token = tonumber(time[1]) * 1000000 + tonumber(time[2])
local stored = redis.call('get', last)
token = math.max(token, (tonumber(stored or 0) or 0) + 1)
redis.call('set', last, string.format('%.0f', token), unpack(keep == '0' and {} or { 'px', keep }))
if passes then
  -- All that a user may not be allowed comes before the first write that counts. The key must stay, and its TTL with it.
  redis.call('pexpire', lock, lease)
  redis.call('hdel', lock, '')
  redis.call('hset', lock, owner, 1)
  redis.call('hdel', lock, from)
  return { -2, token }
end
redis.call('hset', lock, owner, 1)
local expires = redis.pcall('pexpire', lock, lease)
if type(expires) == 'table' then
  redis.call('hdel', lock, owner)
  return expires
end
return { -2, token }
