-- counter_give.lua: give a token back, and tell those who wait.
--
-- KEYS[1]  the counter: string, the tokens left
-- ARGV[1]  channel
--
-- Returns  n  the tokens left now
local counter, channel = KEYS[1], ARGV[1]
local left = redis.call('INCR', counter)
redis.call('PUBLISH', channel, left)
return left
