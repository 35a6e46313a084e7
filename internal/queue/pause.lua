-- pause.lua: have all claims find nothing, for a time or until it is called again, or no longer.
--
-- KEYS[1]  meta: hash; paused is 1, or when the pause ends, µs
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  bodies: hash, id -> body
-- KEYS[4]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[5]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[6]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
-- ARGV[4]  for how long, µs; -1 for no end, 0 to resume
--
-- Returns  an array of one 0; or as once.lua says
local meta, record, bodies, due, flight, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, channel, number, lasts = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

redis.call('hdel', meta, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local paused = lasts < 0 and '1' or lasts > 0 and string.format('%.0f', now + lasts) or '0'
  local at = earliest(due, flight)
  if at then -- those that sleep in an endless pause have no alarm, and that of a longer one is late
    wake({meta = meta, waiters = waiters, channel = channel, paused = paused}, at, now)
  end
  local left = redis.call('hlen', bodies) == 0 and lifetime(meta, now, paused)
  local expires = left and redis.call('pexpire', meta, left) == 1
  if paused == '0' then
    if expires then
      redis.call('hset', meta, 'expires', 1)
    end
    redis.call('hdel', meta, 'paused')
    return {0}
  end
  if left then
    redis.call('hset', meta, 'layout', layout, 'paused', paused, 'expires', 1)
    redis.call('pexpire', meta, left)
    return {0}
  end
  redis.call('persist', meta)
  redis.call('hdel', meta, 'expires')
  redis.call('hset', meta, 'layout', layout, 'paused', paused)
  return {0}
end)
