-- expire.lua: set the time to live of an object, or remove it.
--
-- KEYS[1]  the object
-- ARGV[1]  what TYPE says of it
-- ARGV[2]  time to live, ms; 0 removes it
--
-- Returns  1 if that was done; 0 if the object is not there, or had none to remove
local key = KEYS[1]
local kind, ttl = ARGV[1], ARGV[2]

local refused = guard(key, kind, '', '', '0')
if refused then
  return refused
end
if ttl == '0' then
  return redis.call('persist', key)
end
return redis.call('pexpire', key, ttl)
