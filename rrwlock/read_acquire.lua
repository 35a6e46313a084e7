-- read_acquire.lua: take the read lock if no writer holds the lock and none that is heeded waits for it.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  the owner's first level: string, which lives as long as the level
-- KEYS[3]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms; missing if they are not heeded
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
--
-- Returns  -2  acquired; the owner holds one level
--          -3  acquired like that, and others read
--          -1  busy, and the key has no TTL
--           n  busy for n ms at most, unless it is renewed
local lock, level, writers = KEYS[1], KEYS[2], KEYS[3]
local owner, lease = ARGV[1], ARGV[2]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local left = redis.call('pttl', lock)
if mode == 'write' then
  return left
end
if writers and redis.call('exists', writers) == 1 then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local last = redis.call('zrevrange', writers, 0, 0, 'withscores')
  local good = tonumber(last[2]) - now
  if good > 0 and last[1] ~= 'redisson' then
    return math.floor(good)
  elseif good > 0 then
    -- Readers are held back for a writer that says nothing. Once the last of them has left it has a moment to come in.
    if not mode and good > 50 then
      good = 50
      redis.call('zadd', writers, now + good, 'redisson')
      local _ = redis.call('zcard', writers) == 1 and redis.call('pexpire', writers, good)
    end
    return math.floor(math.min(good, 100))
  end
end
redis.call('set', level, '1', 'px', lease)
local taken = redis.pcall('hset', lock, 'mode', 'read', owner, 1)
if left < tonumber(lease) and type(taken) ~= 'table' then
  taken = redis.pcall('pexpire', lock, lease)
end
if type(taken) == 'table' then -- a user that may not do it must leave nothing, least of all a lock that never expires
  redis.call('hdel', lock, owner, mode and owner or 'mode')
  redis.call('del', level)
  return taken
end
return writers and mode and -3 or -2
