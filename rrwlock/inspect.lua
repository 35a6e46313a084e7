-- inspect.lua: look at a lock, and at some of many readers.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms; optional
-- ARGV[1]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[2]  about how many readers to look at in a call; fewer than that are all looked at
-- ARGV[3]  where to go on among more: 0 at first, then what the last call said
-- ARGV[4]  the field to look at alone; empty for all
--
-- Returns  an array: the mode, empty when nobody holds the lock; the number of waiting writers, 0 without KEYS[2]; how many fields the
--          hash has; for how many ms it lives, as PTTL says; where to go on, 0 after the last of them; then for each field of a holder
--          the field, its levels, and for how many ms it is held yet, unless it is renewed, -1 for ever
local lock, writers = KEYS[1], KEYS[2]
local readers, most, cursor, one = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
  return redis.error_reply('WRONGTYPE the key holds another kind of lock')
end
local waiting, size, page = 0, redis.call('hlen', lock), { '0', {} }
if writers then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  waiting = redis.call('zcount', writers, '(' .. string.format('%.0f', now), '+inf')
end
if one ~= '' then
  local levels = redis.call('hget', lock, one)
  page[2] = levels and { one, levels } or {}
elseif cursor ~= '0' or size > most + 2 then -- beside the mode there may be a writer
  page = redis.call('hscan', lock, cursor, 'count', most + 2)
else
  page[2] = redis.call('hgetall', lock)
end
local answer, fields = { mode or '', waiting, size, redis.call('pttl', lock), page[1] }, page[2]
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
