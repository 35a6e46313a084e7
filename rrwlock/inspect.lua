-- inspect.lua: look at a lock.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[2]  field of a holder; may be empty
--
-- Returns  an array of two integers: how long the lock is held yet in ms, unless it is renewed, -2 when it is free, -1 when
--          it has no TTL; the levels that the field counts
local lock = KEYS[1]
local readers, field = ARGV[1], ARGV[2]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local levels = field ~= '' and tonumber(redis.call('hget', lock, field)) or 0
local longest = -2
if mode == 'write' then
  longest = redis.call('pttl', lock)
elseif mode then
  -- Readers that died may still be in the hash: it is held as long as the longest of those that are alive.
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    local left = remaining(lock, readers, fields[f], fields[f + 1])
    if type(left) == 'table' then
      return left
    end
    longest = math.max(longest, left)
  end
end
return { longest, levels }
