-- change.lua: run a command that changes entries of a map, and publish that, unless it changes nothing.
--
-- KEYS[1]  the map: hash
-- ARGV[1]  channel of the map
-- ARGV[2]  the message
-- ARGV[3]  hset, hdel, hincrby, hincrbyfloat or hpexpire
-- ARGV[4]  first argument of the command after the key, and so on
--
-- Returns  what the command does
local key = KEYS[1]
local channel, message, command, first = ARGV[1], ARGV[2], ARGV[3], 4

local changes = command ~= 'hdel' and command ~= 'hpexpire'
local at = command == 'hdel' and first or #ARGV -- where the keys of entries are; hpexpire has one, the last
while not changes and at <= #ARGV do
  changes = redis.call('hexists', key, ARGV[at]) == 1
  at = at + 1
end
-- Before the write: a user who may not publish changes nothing. If the command fails, the message is about nothing.
if changes then
  redis.call('publish', channel, message)
end
return redis.call(command, key, unpack(ARGV, first))
