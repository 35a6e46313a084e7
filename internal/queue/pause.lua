-- pause.lua: have all claims find nothing, or no longer.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  bodies: hash, id -> body
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  1 to pause, 0 to resume
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; or as once.lua says
local meta, record, bodies, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local layout, number, floor, paused = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  if paused == '1' then
    redis.call('hsetnx', meta, 'layout', layout)
    redis.call('hset', meta, 'paused', 1)
    redis.call('persist', meta)
    redis.call('hdel', meta, 'expires')
    return {0}
  end
  redis.call('hdel', meta, 'paused')
  if redis.call('exists', bodies) == 0 then
    if redis.call('pexpire', meta, 86400000) == 1 then
      redis.call('hset', meta, 'expires', 1)
    end
  end
  return {redis.call('exists', waiters)}
end)
