-- inspect.lua: look at a lock and its queue.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  until when each waiter is good: zset, waiter -> Redis's time in ms
--
-- Returns  an array: the lease left in ms, -2 when the lock is free, -1 when it has no TTL; the owner, empty when it is free; its
--          levels; then for each waiter in order its id, and for how many ms it is good, 0 if it counts as dead
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local holder = redis.call('hlen', lock) == 1 and redis.call('hgetall', lock) or {} -- a hash of another program may be long
local answer = { redis.call('pttl', lock), holder[1] or '', tonumber(holder[2]) or 0 }
local now = clock()
for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
  local good = redis.call('zscore', timeouts, waiter)
  answer[#answer + 1] = waiter
  answer[#answer + 1] = math.max(math.floor((tonumber(good) or 0) - now), 0)
end
return answer
