-- wait.lua: say when to look into the queue again, and hear wake-ups until then.
--
-- KEYS[1]  meta: hash; paused is 1, or when the pause ends, µs; rate as rate.lua says; of those that wait, alarm looks in at alarm_at,
--          and spare at spare_at should alarm have died; limited is alarm_at if the alarm's rate allows nothing before
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- ARGV[1]  prefix of the clients' channels, of which one is notified in how many µs to look as the spare, after a plus sign
-- ARGV[2]  the caller: a client's id
-- ARGV[3]  for how long it hears wake-ups, µs; 0 if it does not
-- ARGV[4]  how much later than alarm the spare looks in, µs
-- ARGV[5]  how far rate of the meta key, see rate.lua, may be ahead if the caller's rate is to allow a claim, µs; -1 without a rate
-- ARGV[6..n]  as claim.lua's, from 12 on
--
-- Returns  -1  no time: wait for a wake-up
--           0  claim now
--           n  look again in n µs
local meta, due, flight, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel, client, listens, later, ahead, items = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV

local head = redis.call('hmget', meta, 'paused', 'alarm', 'alarm_at', 'spare', 'spare_at', 'rate')
local paused, alarm, alarm_at, spare, spare_at, rate = unpack(head)
local counts = items[6] and handled(meta, items, 6)
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
-- Those that died, and first: a full Redis allows this write, and then the rest of the script.
for _, who in ipairs(counts and redis.call('zrangebyscore', waiters, '-inf', string.format('%.0f', now)) or {}) do
  redis.call('hdel', meta, 'w:' .. who)
end
redis.call('zremrangebyscore', waiters, '-inf', string.format('%.0f', now))
for _, field in ipairs(counts and redis.call('exists', waiters) == 0 and redis.call('hgetall', meta) or {}) do
  if string.sub(field, 1, 2) == 'w:' then redis.call('hdel', meta, field) end -- the key had expired: all have died
end
redis.call('zadd', waiters, string.format('%.0f', now + listens), client)
redis.call('pexpire', waiters, 60000)
if counts then redis.call('hset', meta, 'w:' .. client, numbers_in(counts)) end
-- The caller's timer is stopped. While nothing is due nobody sees to it that the others' lives: the next message has one notified.
if not at or alarm == client then
  redis.call('hdel', meta, 'alarm')
  alarm = nil
  if counts then
    -- It looks in by itself for what is due from then on: of two who notify each other there would be no end.
    local before = at and (at > tonumber(paused or 0) and at or 0)
    pass_on({meta = meta, due = due, waiters = waiters, channel = channel}, {}, counts, now, before)
    alarm, alarm_at = unpack(redis.call('hmget', meta, 'alarm', 'alarm_at'))
  end
end
if not at or spare == client then
  redis.call('hdel', meta, 'spare')
  spare = nil
end
if not at then
  return -1
end
local function covers(who, set, limit)
  return who and tonumber(set) > now and tonumber(set) <= limit and redis.call('zscore', waiters, who)
end
local covered = covers(alarm, alarm_at, at)
if covered then
  at = tonumber(alarm_at) -- the next message may rely on it
end
local spared = spare ~= alarm and covers(spare, spare_at, at + later)
if covered then
  if spared then
    return -1
  end
  redis.call('hset', meta, 'spare', client, 'spare_at', string.format('%.0f', at + later))
  return at + later - now
end
local stamp = string.format('%.0f', at)
redis.call('hset', meta, 'alarm', client, 'alarm_at', stamp, unpack(limited and {'limited', stamp} or {}))
-- The caller may die too, so one that sleeps is asked to look after it, unless one will.
if not spared then
  for _, who in ipairs(redis.call('zrevrange', waiters, 0, 2)) do
    if who ~= client and redis.call('publish', channel .. who, string.format('+%.0f', at + later - now)) > 0 then
      redis.call('hset', meta, 'spare', who, 'spare_at', string.format('%.0f', at + later))
      break
    end
  end
end
return at - now
