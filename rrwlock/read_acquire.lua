-- read_acquire.lua: take the read lock if no writer holds the lock and none that is heeded waits for it.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- KEYS[3]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  1 if the owner may hold it already, and then takes it over
-- ARGV[4]  1 to heed waiting writers
--
-- Returns  -2  acquired; the owner holds one level
--          -1  busy, and the key has no TTL
--           n  busy for n ms at most, unless it is renewed
local lock, readers, writers = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, takeover, heeds = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local mine = false
if takeover == '1' and mode == 'write' then
  mine = redis.call('hdel', lock, owner .. ':write') == 1
elseif takeover == '1' and mode then
  mine = redis.call('hexists', lock, owner) == 1
end
if mode == 'write' and not mine then
  return redis.call('pttl', lock)
end
if heeds == '1' and not mine and redis.call('exists', writers) == 1 then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local last = redis.call('zrevrange', writers, 0, 0, 'withscores')
  if tonumber(last[2]) > now then
    return math.floor(tonumber(last[2]) - now)
  end
end
redis.call('hset', lock, 'mode', 'read', owner, 1)
-- The wire format builds the keys of levels from the owner's field.
redis.call('set', readers .. owner .. ':rwlock_timeout:1', '1', 'px', lease)
if redis.call('pttl', lock) < tonumber(lease) then
  redis.call('pexpire', lock, lease)
end
return -2
