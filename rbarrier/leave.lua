-- leave.lua: leave a double barrier, or keep one's place in it.
--
-- KEYS[1]  who has entered: sorted set, participant -> until when its place is good, ms
-- KEYS[2]  who leaves: sorted set as KEYS[1]
-- KEYS[3]  who was in rounds that have ended: sorted set, participant -> four times the time in ms, plus how: see rounds.lua
-- KEYS[4]  the barrier: string, how many participants a round has
-- ARGV[1]  the participant
-- ARGV[2]  1 to leave, 0 to keep the place
-- ARGV[3]  how long a place is good, ms
-- ARGV[4]  how long an ended round is remembered, ms
-- ARGV[5]  channel of those who wait
-- ARGV[6]  how many participants the barrier has
--
-- Returns  an array of a code and 0, as arrive.lua does:
--          -1 the round is broken; 0 the participant has its place; 1 all have left
local inside, leaving, ended, barrier = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local who, leaves, good, keep, channel, parties = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

prepare(ended, keep)
redis.call('zrem', inside, '') -- does nothing, and fails if it would later
local places = redis.call('zscore', leaving, who) and leaving or redis.call('zscore', inside, who) and inside
local count = redis.call('zcard', inside) + redis.call('zcard', leaving)
if lapsed(inside) or lapsed(leaving) or places and count ~= parties then -- perhaps Redis has lost some
  finish({ inside, leaving }, ended, { broken = 2, keep = keep, channel = channel })
end
local over = outcome(ended, who)
if over ~= 0 then
  return { over, 0 }
end
if not places then
  return { -1, 0 } -- Redis has lost its data
end
if redis.call('pexpire', barrier, keep) == 0 then -- Redis has lost it
  redis.call('set', barrier, parties, 'px', keep)
end
if leaves == '1' then
  redis.call('zrem', inside, who)
  redis.call('zadd', leaving, clock() + good, who)
else
  redis.call('zadd', places, clock() + good, who)
end
redis.call('pexpire', inside, keep)
redis.call('pexpire', leaving, keep)
if #redis.call('zrange', inside, 0, 0) > 0 then
  return { 0, 0 }
end
finish({ leaving }, ended, { broken = 0, keep = keep, channel = channel })
return { 1, 0 }
