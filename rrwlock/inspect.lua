-- inspect.lua: look at a lock.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms; optional
-- ARGV[1]  what the keys of readers begin with: strings, one for each level, which live as long as it
--
-- Returns  an array: the mode, empty when nobody holds the lock; the number of waiting writers, 0 without KEYS[2]; then for each
--          field of a holder the field, its levels, and for how many ms it is held yet, unless it is renewed, -1 for ever
local lock, writers = KEYS[1], KEYS[2]
local readers = ARGV[1]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local answer = { mode or '', 0 }
if writers then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  answer[2] = redis.call('zcount', writers, '(' .. string.format('%.0f', now), '+inf')
end
local fields = redis.call('hgetall', lock)
for f = 1, #fields, 2 do
  local field, left = fields[f], -2
  if string.sub(field, -6) == ':write' then
    left = redis.call('pttl', lock)
  elseif field ~= 'mode' then
    left = remaining(lock, readers, field, fields[f + 1])
    if type(left) == 'table' then
      return left
    end
  end
  if left ~= -2 then -- Readers that died may still be in the hash.
    answer[#answer + 1] = field
    answer[#answer + 1] = fields[f + 1]
    answer[#answer + 1] = left
  end
end
return answer
