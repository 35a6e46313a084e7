-- wake.lua: see to it that one client looks into the queue when its earliest message is due.
--
-- KEYS[1]  meta: hash; alarm is the client that will look at alarm_at, µs
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- KEYS[5]  prefix of the clients' channels; who is told of a later time calls wait.lua then
--
-- Returns  1  a client was told
--          0  none has to be told, or none is there
local meta, due, flight, waiters, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local head = redis.call('hmget', meta, 'paused', 'alarm', 'alarm_at')
local first = redis.call('zrange', due, 0, 0, 'withscores')[2]
local expiry = redis.call('zrange', flight, 0, 0, 'withscores')[2]
if head[1] or not first and not expiry then
  return 0
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local at = math.min(tonumber(first or expiry), tonumber(expiry or first))
local alarm = head[2]
local listens = alarm and redis.call('zscore', waiters, alarm)
local set = tonumber(head[3] or 0)
if listens and set > now and set <= at then
  return 0
end
local who = listens and alarm
-- A channel that nobody hears is that of a client which died. On a cluster only one node's subscribers are counted, so
-- that a few clients may be told in vain.
for _ = 1, 3 do
  who = who or redis.call('zrevrangebyscore', waiters, '+inf', string.format('%.0f', now), 'limit', 0, 1)[1]
  if not who then
    return 0
  end
  local heard = redis.call('publish', channel .. who, string.format('%.0f', math.max(0, at - now)))
  if heard == 0 or at <= now then
    redis.call('zrem', waiters, who)
  else
    redis.call('hset', meta, 'alarm', who, 'alarm_at', string.format('%.0f', at))
  end
  if heard > 0 then
    return 1
  end
  who = nil
end
return 0
