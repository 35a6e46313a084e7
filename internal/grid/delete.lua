-- delete.lua: delete an object. The server frees its memory in the background.
--
-- KEYS[1]  the object
-- ARGV[1]  what TYPE says of it
-- ARGV[2]  channel of a message, if there is one
-- ARGV[3]  the message, which is published if the object was there
--
-- Returns  1 if it was there, 0 if not
local key = KEYS[1]
local kind, channel, message = ARGV[1], ARGV[2], ARGV[3]

local refused = guard(key, kind, '', '', '0')
if refused then
  return refused
end
if message and redis.call('exists', key) == 1 then
  redis.call('publish', channel, message)
end
return redis.call('unlink', key)
