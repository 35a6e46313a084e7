-- expire.lua: set the time to live of an object, or remove it.
--
-- KEYS[1]  the object
-- ARGV[1]  what TYPE says of it
-- ARGV[2]  time to live, ms; 0 removes it
-- ARGV[3]  channel of a message, if there is one
-- ARGV[4]  the message, which is published if the object ends earlier now
--
-- Returns  0 if the object is not there, or had no time to live to remove
--          1 if that was done
--          2 if it was, and a message was published
local key = KEYS[1]
local kind, ttl, channel, message = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local refused = guard(key, kind, '', '', '0')
if refused then
  return refused
end
if ttl == '0' then
  return redis.call('persist', key)
end
local left = message and redis.call('pttl', key) or -2
if left == -1 or left > tonumber(ttl) then
  redis.call('publish', channel, message)
  return 1 + redis.call('pexpire', key, ttl)
end
return redis.call('pexpire', key, ttl)
