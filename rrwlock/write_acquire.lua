-- write_acquire.lua: take the write lock if nobody alive holds the lock, and otherwise mark that a writer waits.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms; missing for one that leaves none,
--          and that cannot hold the lock by an earlier try
-- ARGV[1]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[2]  owner
-- ARGV[3]  lease, ms
-- ARGV[4]  an owner from whom the lock passes to the new one if that owner holds it, in either mode; empty for none
-- ARGV[5]  how long a mark is good, ms
--
-- Returns  -2  acquired; the owner holds one level
--          -1  busy, and the holder has no TTL
--           n  busy for n ms, unless it is renewed; another look is worth it then, whoever else holds the lock
local lock, writers = KEYS[1], KEYS[2]
local readers, owner, lease, from, mark = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local field = owner .. ':write'

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local left, had, gone = -2, -2, {}
if mode == 'write' then
  left = redis.call('pttl', lock)
  had = writers and redis.call('hexists', lock, field) == 1 and left or -2
  if had ~= -2 or from ~= '' and redis.call('hexists', lock, from .. ':write') == 1 then
    left, gone = -2, had == -2 and { from .. ':write', from } or {}
  end
elseif mode then
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    if fields[f] ~= 'mode' then
      left = remaining(lock, readers, fields[f], fields[f + 1])
      if type(left) == 'table' then
        return left
      elseif left ~= -2 and fields[f] ~= from then
        break -- one alive is enough
      end
      left, gone[#gone + 1] = -2, fields[f]
    end
  end
end
if left == -2 then
  local _ = writers and redis.call('zrem', writers, owner)
  -- A user that may not send HDEL or PEXPIRE must take nothing from a holder, and leave no lock that never expires.
  if gone[1] then
    redis.call('hdel', lock, '')
    redis.call('pexpire', lock, lease)
  end
  if had == -2 then -- else an attempt that arrives late: its owner may have the lock for longer, and may read as well
    redis.call('hset', lock, 'mode', 'write', field, 1)
  end
  local expires = redis.pcall('pexpire', lock, math.max(had, lease))
  if type(expires) == 'table' then
    redis.call('hdel', lock, 'mode', field)
    return expires
  end
  for _, holder in ipairs(gone) do
    redis.call('hdel', lock, holder)
  end
elseif writers then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('zremrangebyscore', writers, '-inf', now)
  redis.call('zadd', writers, now + mark, owner)
  local expires = redis.pcall('pexpire', writers, mark)
  if type(expires) == 'table' then
    redis.call('zrem', writers, owner)
    return expires
  end
end
return left
