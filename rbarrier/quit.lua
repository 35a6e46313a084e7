-- quit.lua: break the round of a participant that gives up.
--
-- KEYS[1]  who has arrived: sorted set, participant -> until when its place is good, ms
-- KEYS[2]  who was in rounds that have ended: sorted set, participant -> four times the time in ms, plus how: see rounds.lua
-- KEYS[3]  who has entered a double barrier: sorted set as KEYS[1]; missing for others
-- KEYS[4]  who leaves a double barrier: sorted set as KEYS[1]; missing for others
-- ARGV[1]  the participant
-- ARGV[2]  how long an ended round is remembered, ms
-- ARGV[3]  channel of those who wait
--
-- Returns  1: the participant cannot arrive any more
local arrived, ended, inside, leaving = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local who, keep, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

prepare(ended, keep)
local sets, broken = {}, 1
if redis.call('zscore', arrived, who) then
  sets = { arrived }
elseif inside and (redis.call('zscore', inside, who) or redis.call('zscore', leaving, who)) then
  sets, broken = { inside, leaving }, 2
end
redis.call('zadd', ended, clock() * 4 + 1, who) -- also for one whose call is still on its way
finish(sets, ended, { broken = broken, keep = keep, channel = channel })
return 1
