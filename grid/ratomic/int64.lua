-- int64.lua: change a whole number if it is in a range.
--
-- KEYS[1]  the number: string of digits, 0 if it is not there
-- ARGV[1]  set or incrby
-- ARGV[2]  what to set or add
-- ARGV[3]  the least that the number may be
-- ARGV[4]  the most
--
-- Returns  an array
--          1 if it was changed, 0 if not; the number then, as a text
local key = KEYS[1]
local command, operand, least, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- Numbers are compared as texts: a double would lose digits.
local function less(a, b)
  local negative = a:sub(1, 1) == '-'
  if negative ~= (b:sub(1, 1) == '-') then
    return negative
  end
  if #a ~= #b then
    return (#a < #b) ~= negative
  end
  return a ~= b and (a < b) ~= negative
end

local now = redis.call('get', key) or '0'
if now ~= '0' and not now:match('^-?[1-9]%d*$') then
  return redis.error_reply('ERR value is not an integer or out of range')
end
if less(now, least) or less(most, now) then
  return { 0, now }
end
if command == 'set' then
  redis.call('set', key, operand, 'keepttl')
else
  redis.call('incrby', key, operand)
end
return { 1, redis.call('get', key) }
