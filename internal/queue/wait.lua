-- wait.lua: say when to look into the queue again, and hear wake-ups until then.
--
-- KEYS[1]  meta: hash; paused is 1, or when the pause ends, µs; rate as rate.lua says; the rest as rest.lua
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- ARGV[1]  prefix of the clients' channels, of which one is notified in how many µs to look as the spare, after a plus sign
-- ARGV[2]  the caller: a client's id
-- ARGV[3]  for how long it hears wake-ups, µs; 0 if it does not
-- ARGV[4]  how much later than alarm the spare looks in, µs
-- ARGV[5]  how far rate of the meta key, see rate.lua, may be ahead if the caller's rate is to allow a claim, µs; -1 without a rate
-- ARGV[6..n]  as claim.lua's, from 14 on
--
-- Returns  -1  no time: wait for a wake-up
--           0  claim now
--           n  look again in n µs
local meta, due, flight, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel, client, listens, later, ahead, items = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

local head = redis.call('hmget', meta, 'paused', 'alarm', 'rate', unpack(number_fields(items, 6)))
local paused, alarm, rate = head[1], head[2], head[3]
local counts = items[6] and handled(head, 3, items, 6)
local at = earliest(due, flight, counts)
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
if at and paused then
  at = paused ~= '1' and math.max(at, tonumber(paused)) or nil
end
local allowed = ahead >= 0 and tonumber(rate or 0) - ahead
local limited = at and allowed and allowed > at
if limited then
  at = allowed
end
if at and at <= now then
  return 0
end
if listens == 0 then
  return at and at - now or -1
end
local queue = {meta = meta, due = due, waiters = waiters, channel = channel}
if counts and (not at or alarm == client) then
  -- It looks in by itself for what is due from then on: of two who notify each other there would be no end.
  redis.call('hdel', meta, 'alarm', 'w:' .. client) -- nor is it notified itself: what it works on is noted below
  pass_on(queue, {}, counts, now, at and (at > tonumber(paused or 0) and at or 0))
end
return rest(queue, client, listens, later, at, now, counts, limited)
