-- exit.lua: note that somebody went out.
--
-- KEYS[1]  who is inside: hash, name -> levels
-- KEYS[2]  record of events: list
-- ARGV[1]  name
-- ARGV[2]  lifetime of both keys, ms
--
-- Returns  1
local inside, events = KEYS[1], KEYS[2]
local name, lifetime = ARGV[1], ARGV[2]
local time = redis.call('TIME')
if redis.call('HINCRBY', inside, name, -1) <= 0 then
  redis.call('HDEL', inside, name)
end
redis.call('RPUSH', events, cjson.encode({ kind = 'exit', who = name, seconds = time[1], micros = time[2] }))
redis.call('PEXPIRE', events, lifetime)
return 1
