-- arrive.lua: take a place in the round of a barrier, keep it, or learn how the round has ended.
--
-- KEYS[1]  the barrier: string, how many participants a round has
-- KEYS[2]  who has arrived: sorted set, participant -> until when its place is good, ms
-- KEYS[3]  who was in rounds that have ended: sorted set, participant -> four times the time in ms, plus how: see rounds.lua
-- KEYS[4]  who has entered a double barrier: sorted set as KEYS[2]; missing for others
-- KEYS[5]  who leaves a double barrier: sorted set as KEYS[2]; missing for others
-- ARGV[1]  the participant
-- ARGV[2]  how many participants it expects
-- ARGV[3]  how long a place is good, ms
-- ARGV[4]  how long an ended round is remembered, ms
-- ARGV[5]  channel of those who wait
-- ARGV[6]  1 if it has had a place, or may have, and takes no other one
--
-- Returns  an array of a code, and how many participants the barrier has, 0 where that does not matter:
--          -2 it has another number of them; -1 the round is broken; 0 the participant has a place; 1 the round is complete;
--          2 it has no place yet, as enough others wait for those inside
local barrier, arrived, ended, inside, leaving = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local who, parties, good, keep, channel, had = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]

local known = redis.call('get', barrier)
if known and not tonumber(known) then
  return redis.error_reply('WRONGTYPE the key holds no number of participants')
end
prepare(ended, keep)
redis.call('set', barrier, '', known and 'nx' or 'xx') -- does nothing, and fails if SET would after a round has ended
if lapsed(arrived) then
  finish({ arrived }, ended, { broken = 1, keep = keep, channel = channel })
end
-- The last one inside ends the round as it leaves: if all that is left are leavers, Redis has lost some.
local lost = inside and redis.call('zcard', inside) == 0 and redis.call('zcard', leaving) > 0
if inside and (lost or lapsed(inside) or lapsed(leaving)) then
  finish({ inside, leaving }, ended, { broken = 2, keep = keep, channel = channel })
end
local over = outcome(ended, who, true)
if over ~= 0 then
  return { over, 0 }
end
if inside and redis.call('zscore', inside, who) then
  redis.call('zadd', inside, clock() + good, who)
  return { 1, 0 }
end
local placed, places = redis.call('zscore', arrived, who), redis.call('zcard', arrived)
if not placed then
  if had == '1' then -- Redis has lost its data, or has forgotten the round
    redis.call('zadd', ended, clock() * 4 + 1, who) -- an earlier call may still be on its way
    redis.call('pexpire', ended, keep)
    return { -1, 0 }
  elseif known and known ~= parties then
    return { -2, tonumber(known) }
  elseif places >= tonumber(parties) then
    return { 2, 0 }
  end
  places = places + 1
end
redis.call('set', barrier, parties, 'px', keep)
redis.call('zadd', arrived, clock() + good, who)
redis.call('pexpire', arrived, keep)
if places < tonumber(parties) or inside and #redis.call('zrange', inside, 0, 0) > 0 then
  return { 0, 0 }
end
if not inside then
  finish({ arrived }, ended, { broken = 0, keep = keep, channel = channel })
  return { 1, 0 }
end
local all = redis.call('zrange', arrived, 0, -1, 'withscores')
for p = 1, #all, 2 do
  redis.call('zadd', inside, all[p + 1], all[p]) -- good for as long as its own client has asked
end
redis.call('pexpire', inside, keep)
redis.call('zremrangebyrank', arrived, 0, -1)
redis.pcall('publish', channel, '0')
return { 1, 0 }
