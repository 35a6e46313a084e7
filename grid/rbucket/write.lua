-- write.lua: set the value of a bucket, under a condition.
--
-- KEYS[1]  the bucket: string
-- KEYS[2]  the highest fencing token seen: string; only with a token
-- ARGV[1]  the value
-- ARGV[2]  any; absent, present: only if there is no value, or if there is one; equal: only over ARGV[3]
-- ARGV[3]  the old value
-- ARGV[4]  time to live, ms; 0 for none, -1 for the one that the value had
-- ARGV[5]  fencing token, '' for none
-- ARGV[6]  for how long that is kept, ms; 0 for ever
--
-- Returns  1 if the value was set, 0 if not
local key, fence = KEYS[1], KEYS[2]
local value, mode, old, ttl, token, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local refused = guard(key, 'string', fence, token, keep)
if refused then
  return refused
end
if mode == 'equal' then
  if redis.call('get', key) ~= old then
    return 0
  end
elseif mode ~= 'any' and (redis.call('exists', key) == 1) ~= (mode == 'present') then
  return 0
end
if ttl == '-1' then
  redis.call('set', key, value, 'keepttl')
elseif ttl == '0' then
  redis.call('set', key, value)
else
  redis.call('set', key, value, 'px', ttl)
end
return 1
