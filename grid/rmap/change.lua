-- change.lua: run a command that changes entries of a map, and publish that, unless it changes nothing.
--
-- KEYS[1]     the map: hash
-- ARGV[1]     channel of the map
-- ARGV[2]     the message
-- ARGV[3]     hset, hdel, hincrby, hincrbyfloat or hpexpire
-- ARGV[4..n]  arguments of the command after the key
--
-- Returns  what the command does
local key = KEYS[1]
local channel, message, command = ARGV[1], ARGV[2], ARGV[3]
local args = { unpack(ARGV, 4) }

local changes = command ~= 'hdel' and command ~= 'hpexpire'
local at = command == 'hdel' and 1 or #args -- where the keys of entries are; hpexpire has one, the last
while not changes and at <= #args do
  changes = redis.call('hexists', key, args[at]) == 1
  at = at + 1
end
-- Before the write: a user who may not publish changes nothing. If the command fails, the message costs a read.
if changes then
  redis.call('publish', channel, message)
end
if command == 'hset' then
  return redis.call('hset', key, unpack(args))
elseif command == 'hdel' then
  return redis.call('hdel', key, unpack(args))
elseif command == 'hincrby' then
  return redis.call('hincrby', key, unpack(args))
elseif command == 'hincrbyfloat' then
  return redis.call('hincrbyfloat', key, unpack(args))
end
return redis.call('hpexpire', key, unpack(args))
