-- inspect.lua: look at a lock.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[1]  field of a holder; may be empty
--
-- Returns  an array of two integers: how long the lock is held yet in ms, unless it is renewed, -2 when it is free, -1 when
--          it has no TTL; the levels that the field counts
local lock, readers = KEYS[1], KEYS[2]
local field = ARGV[1]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local levels = field ~= '' and tonumber(redis.call('hget', lock, field)) or 0
local left = -2
if mode == 'write' then
  left = redis.call('pttl', lock)
elseif mode then
  -- Readers that died may be in the hash yet: it is held as long as the longest of those that are alive.
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    for i = 1, tonumber(fields[f + 1]) or 0 do
      -- The wire format builds the keys of levels from the owner's field.
      left = math.max(left, redis.call('pttl', readers .. fields[f] .. ':rwlock_timeout:' .. i))
    end
  end
end
return { left, levels }
