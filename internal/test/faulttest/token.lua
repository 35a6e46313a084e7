-- token.lua: note a fencing token.
--
-- KEYS[1]  record of events: list
-- ARGV[1]  token
-- ARGV[2]  lifetime of the key, ms
--
-- Returns  1
local events = KEYS[1]
local token, lifetime = ARGV[1], ARGV[2]
local time = redis.call('TIME')
redis.call('RPUSH', events, cjson.encode({ kind = 'token', token = token, seconds = time[1], micros = time[2] }))
redis.call('PEXPIRE', events, lifetime)
return 1
