-- float64.lua: change a number if it is in a range, or stays in it.
--
-- KEYS[1]  the number: string, 0 if it is not there
-- ARGV[1]  set, if the number is in the range; or incrbyfloat, if the sum is
-- ARGV[2]  what to set or add
-- ARGV[3]  the least
-- ARGV[4]  the most
--
-- Returns  an array
--          1 if it was changed, 0 if not; the number then, as a text
local key = KEYS[1]
local command, operand, least, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- The Lua of embedded servers reads numbers of many digits only with a point.
local function within(text)
  local number = tonumber(text) or tonumber(text .. '.0')
  return number and number >= least and number <= most
end

local now = redis.call('get', key)
if command == 'set' then
  if not tonumber(now or '0') then
    return redis.error_reply('ERR value is not a valid float')
  end
  if not within(now or '0') then
    return { 0, now or '0' }
  end
  redis.call('set', key, operand, 'keepttl')
  return { 1, operand }
end
-- The server adds with more digits than a script has, so its sum is judged, and taken back.
-- These do nothing, and fail if those below would, or if Redis is full.
redis.call('set', key, '', now and 'nx' or 'xx')
if not now then
  redis.call('del', key)
end
local sum = redis.call('incrbyfloat', key, operand)
if within(sum) then
  return { 1, sum }
end
if now then
  redis.call('set', key, now, 'keepttl')
else
  redis.call('del', key)
end
return { 0, now or '0' }
