-- publish.lua: publish a message of a cluster on a plain channel, also for a client whose other scripts publish on sharded ones.
--
-- KEYS[1]  any key of the slot, for the way there
-- ARGV[1]  the channel
-- ARGV[2]  the message
--
-- Returns  how many subscriptions of this server's connections have received it
local _, channel, message = KEYS[1], ARGV[1], ARGV[2]

return redis.call('PUBLISH', channel, message)
