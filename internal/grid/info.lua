-- info.lua: look at an object.
--
-- KEYS[1]  the object
-- ARGV[1]  what TYPE says of it
--
-- Returns  an array
--          number of elements; time to live as PTTL has it, ms; bytes of memory, 0 if the server does not say
local key = KEYS[1]
local kind = ARGV[1]

local refused = guard(key, kind, '', '', '0')
if refused then
  return refused
end
local length
if kind == 'hash' then
  length = redis.call('hlen', key)
elseif kind == 'set' then
  length = redis.call('scard', key)
elseif kind == 'zset' then
  length = redis.call('zcard', key)
else
  length = redis.call('exists', key)
end
local bytes = redis.pcall('memory', 'usage', key) -- nothing for a key that is not there, an error if the user may not
return { length, redis.call('pttl', key), type(bytes) == 'number' and bytes or 0 }
