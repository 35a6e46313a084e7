-- resign.lua: forget a leader whose lock was released. Its term stays, so that the next one is higher.
--
-- KEYS[1]  who leads: hash, see lead.lua
-- ARGV[1]  owner
-- ARGV[2]  channel of the observers
--
-- Returns  0  another one leads, or none
--          1  forgotten
local leader = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

if redis.call('hget', leader, 'owner') ~= owner then
  return 0
end
redis.call('publish', channel, '')
redis.call('hdel', leader, 'owner', 'since', 'value', 'version')
return 1
