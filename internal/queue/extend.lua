-- extend.lua: set the visibility of a claimed message anew.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  claims: hash, id -> the latest claim, see states.md
-- KEYS[5]  waiters: sorted set, clients that hear wake-ups
-- KEYS[6]  groups: sorted set, see group.lua; this and what follows only if the message is of a group
-- KEYS[7]  places: hash, see group.lua
-- ARGV[1]  prefix of the clients' channels
-- ARGV[2]  member
-- ARGV[3]  claim
-- ARGV[4]  visibility from now on, µs
--
-- Returns  1  the claim is the message's latest, and lives on
--          0  it is not, or somebody else has its place in its group
local meta, due, flight, claims, waiters, groups, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local channel, member, claim, visibility = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
local held = redis.call('hget', claims, string.sub(member, 17)) or ''
if not string.match(held, '^[hr]' .. claim) then
  return 0
end
local before = redis.call('zscore', flight, member)
local stands = tonumber(redis.call('zscore', due, member))
if not before and (not stands or stands < claimable) then
  return 0
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local ends = now + visibility
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
if groups then try(queue) end
if before and ends < tonumber(before) then
  wake(queue, ends, now)
end
redis.call('zadd', flight, string.format('%.0f', ends), member)
redis.call('zrem', due, member) -- where one stands whose claim ran out
if not before then arrange(queue, {member}, now) end
return 1
