-- enter.lua: note that somebody went in, and who was inside then.
--
-- KEYS[1]  who is inside: hash, name -> levels
-- KEYS[2]  record of events: list
-- ARGV[1]  name
-- ARGV[2]  lifetime of both keys, ms
--
-- Returns  n  how many were inside already, ARGV[1] itself included
local inside, events = KEYS[1], KEYS[2]
local name, lifetime = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local others = redis.call('HKEYS', inside)
redis.call('HINCRBY', inside, name, 1)
redis.call('RPUSH', events, cjson.encode({
  kind = 'enter', who = name, seconds = time[1], micros = time[2], others = table.concat(others, ', '),
}))
redis.call('PEXPIRE', inside, lifetime)
redis.call('PEXPIRE', events, lifetime)
return #others
