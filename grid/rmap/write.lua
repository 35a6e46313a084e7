-- write.lua: set an entry of a map, under a condition.
--
-- KEYS[1]  the map: hash
-- KEYS[2]  the highest fencing token seen: string; only with a token
-- ARGV[1]  the entry's key
-- ARGV[2]  the value
-- ARGV[3]  any; swap: any, and the old value is returned; absent, present: only if there is no entry, or if there is one;
--          equal: only over ARGV[4]
-- ARGV[4]  the old value
-- ARGV[5]  time to live of the entry, ms; 0 for none, -1 for the one that it had
-- ARGV[6]  channel of the map
-- ARGV[7]  the message, which is published if the entry is set; '' for none
-- ARGV[8]  fencing token, '' for none
-- ARGV[9]  for how long that is kept, ms; 0 for ever
--
-- Returns  an array
--          0       nothing was set
--          1       it was set
--          1, old  it was set in place of a value; only swap
local key, fence = KEYS[1], KEYS[2]
local field, value, mode, old, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local channel, message, token, keep = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

if ttl == '-1' and not has_times() then
  ttl = '0'
end
if ttl ~= '0' then -- before the first write: a server without such times refuses to set one
  local left = redis.pcall('hpttl', key, 'fields', 1, field)
  if left.err then
    return left
  end
  if ttl == '-1' then -- hget still finds an entry in its last millisecond, in which hpttl is -2 or 0
    ttl = tostring(left[1] ~= -1 and redis.call('hexists', key, field) == 1 and math.max(left[1], 1) or 0)
  end
end
local refused = guard(key, 'hash', fence, token, keep)
if refused then
  return refused
end
local was = mode ~= 'any' and redis.call('hget', key, field)
if mode == 'absent' and was or mode == 'present' and not was or mode == 'equal' and was ~= old then
  return { 0 }
end
if message ~= '' then
  redis.call('publish', channel, message)
end
if ttl ~= '0' then -- it has no effect, but fails before the first write if the user may not set times
  local expires = redis.pcall('hpexpire', key, ttl, 'fields', 1, field)
  if expires.err then
    return expires
  end
end
redis.call('hset', key, field, value)
if ttl ~= '0' then
  redis.call('hpexpire', key, ttl, 'fields', 1, field)
end
if mode == 'swap' and was then
  return { 1, was }
end
return { 1 }
