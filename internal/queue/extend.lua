-- extend.lua: set the visibility of a claimed message anew.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  claims: hash, id -> the latest claim, see states.md
-- KEYS[5]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  prefix of the clients' channels
-- ARGV[2]  member
-- ARGV[3]  claim
-- ARGV[4]  visibility from now on, µs
--
-- Returns  1  the claim is the message's latest, and lives on
--          0  it is not
local meta, due, flight, claims, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel, member, claim, visibility = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
local held = redis.call('hget', claims, string.sub(member, 17)) or ''
if not string.match(held, '^[hr]' .. claim) then
  return 0
end
local before = redis.call('zscore', flight, member)
if not before and not redis.call('zscore', due, member) then
  return 0
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local ends = now + visibility
if before and ends < tonumber(before) then
  wake({meta = meta, waiters = waiters, channel = channel}, ends, now)
end
redis.call('zadd', flight, string.format('%.0f', ends), member)
redis.call('zrem', due, member) -- where one stands whose claim ran out
return 1
