-- inspect.lua: look at a lock and its queue.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  until when each waiter is good: zset, waiter -> Redis's time in ms
--
-- ARGV[1]  how many waiters to look at, at most
--
-- Returns  an array: the lease left in ms, -2 when the lock is free, -1 when it has no TTL; the owner, empty when it is free; its
--          levels; the length of the queue; then for each waiter in order its id, and for how many ms it is good, 0 if it counts as
--          dead, -1 if nobody has said
local lock, queue, timeouts, most = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local holder = redis.call('hlen', lock) == 1 and redis.call('hgetall', lock) or {} -- a hash of another program may be long
local answer = { redis.call('pttl', lock), holder[1] or '', tonumber(holder[2]) or 0, redis.call('llen', queue) }
local now = clock()
for _, waiter in ipairs(most > 0 and redis.call('lrange', queue, 0, most - 1) or {}) do
  local good = redis.call('zscore', timeouts, waiter)
  answer[#answer + 1] = waiter
  answer[#answer + 1] = good and math.max(math.floor(tonumber(good) - now), 0) or -1
end
return answer
