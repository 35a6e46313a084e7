-- pause.lua: have all claims find nothing, or no longer.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  bodies: hash, id -> body
-- KEYS[3]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  1 to pause, 0 to resume
-- ARGV[2]  the caller's version of the layout
--
-- Returns  1  other clients wait for a wake-up
--          0  none does
local meta, bodies, waiters = KEYS[1], KEYS[2], KEYS[3]
local paused, layout = ARGV[1], ARGV[2]

if paused == '1' then
  redis.call('hsetnx', meta, 'layout', layout)
  redis.call('hset', meta, 'paused', 1)
  redis.call('persist', meta)
  redis.call('hdel', meta, 'expires')
  return 0
end
redis.call('hdel', meta, 'paused')
if redis.call('exists', bodies) == 0 then
  if redis.call('pexpire', meta, 86400000) == 1 then
    redis.call('hset', meta, 'expires', 1)
  end
end
return redis.call('exists', waiters)
