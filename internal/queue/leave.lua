-- leave.lua: hear wake-ups no more, and have another client look in when the next message is due.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  prefix of the clients' channels
-- ARGV[2]  the caller: a client's id
-- ARGV[3]  1 for a client that works on tasks
--
-- Returns  1
local meta, due, flight, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel, client, works = ARGV[1], ARGV[2], ARGV[3]

redis.call('zrem', waiters, client)
if works then redis.call('hdel', meta, 'w:' .. client) end
local at = earliest(due, flight, works and {})
if redis.call('hget', meta, 'spare') == client then
  redis.call('hdel', meta, 'alarm') -- so that one is notified below, which finds another spare
end
local time = redis.call('time')
local queue, now = {meta = meta, due = due, waiters = waiters, channel = channel}, time[1] * 1000000 + time[2]
if at then wake(queue, at, now) end
if works then pass_on(queue, {}, {}, now) end
return 1
