-- announce.lua: publish a message on a channel. It changes nothing.
--
-- KEYS[1]  any key of the slot, for the way there
-- ARGV[1]  the channel
-- ARGV[2]  the message
--
-- Returns  how many of this server's connections have received it
local _, channel, message = KEYS[1], ARGV[1], ARGV[2]

return redis.call('publish', channel, message)
