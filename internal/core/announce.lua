-- announce.lua: publish a message on a channel. It changes nothing.
--
-- KEYS[1]  the channel, also as the key that says to which node
-- ARGV[1]  the message
--
-- Returns  how many of this server's connections have received it
return redis.call('publish', KEYS[1], ARGV[1])
