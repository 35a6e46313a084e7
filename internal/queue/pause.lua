-- pause.lua: have all claims find nothing, or no longer.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  bodies: hash, id -> body; only to resume, as the next one
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
--
-- Returns  an array of one 0; or as once.lua says
local meta, record, bodies, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local layout, channel, number = ARGV[1], ARGV[2], ARGV[3]

redis.call('hdel', meta, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  if not bodies then
    redis.call('persist', meta)
    redis.call('hdel', meta, 'expires')
    redis.call('hset', meta, 'layout', layout, 'paused', 1)
    return {0}
  end
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  wake({meta = meta, waiters = waiters, channel = channel, resumes = true}, now, now)
  if redis.call('hlen', bodies) == 0 and redis.call('pexpire', meta, 86400000) == 1 then
    redis.call('hset', meta, 'expires', 1)
  end
  redis.call('hdel', meta, 'paused')
  return {0}
end)
