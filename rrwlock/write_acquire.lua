-- write_acquire.lua: take the write lock if nobody alive holds the lock, and otherwise mark that a writer waits.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- KEYS[3]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  1 if the owner may hold it already, in either mode, and then takes it over; 2 if only an earlier try may have got it
-- ARGV[4]  how long a mark is good, ms; 0 to leave none
--
-- Returns  -2  acquired; the owner holds one level
--          -1  busy, and the holder has no TTL
--           n  busy for n ms, unless it is renewed; another look is worth it then, whoever else holds the lock
local lock, readers, writers = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, takeover, mark = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local field = owner .. ':write'

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local left, had = -2, -2
if mode == 'write' then
  left = redis.call('pttl', lock)
  if takeover ~= '0' and redis.call('hexists', lock, field) == 1 then
    had = left
    left = -2
  end
elseif mode then
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    if fields[f] ~= 'mode' then
      for i = 1, tonumber(fields[f + 1]) or 0 do
        -- The wire format builds the keys of levels from the owner's field.
        left = math.max(left, redis.call('pttl', readers .. fields[f] .. ':rwlock_timeout:' .. i))
      end
      if left == -2 or takeover == '1' and fields[f] == owner then
        left = -2
        redis.call('hdel', lock, fields[f])
      else
        break -- one alive is enough
      end
    end
  end
end
if left == -2 then
  redis.call('zrem', writers, owner)
  -- A try may arrive late, when its owner has had the lock for long, for longer, and may read as well.
  if had == -2 or takeover == '1' then
    redis.call('del', lock) -- the mode, and what is left of one that is taken over
    redis.call('hset', lock, 'mode', 'write', field, 1)
  end
  redis.call('pexpire', lock, math.max(had, lease))
elseif mark > 0 then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('zremrangebyscore', writers, '-inf', now)
  redis.call('zadd', writers, now + mark, owner)
  redis.call('pexpire', writers, mark)
end
return left
