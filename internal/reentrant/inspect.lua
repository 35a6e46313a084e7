-- inspect.lua: look at a lock.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the last token of a fenced lock: string, decimal; optional
--
-- Returns  an array: the lease left in ms, -2 when the lock is free, -1 when it has no TTL; the owner, empty when it is free; its
--          levels; with KEYS[2] the last token, 0 if there is none
local lock, token = KEYS[1], KEYS[2]

if redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local holder = redis.call('hlen', lock) == 1 and redis.call('hgetall', lock) or {} -- a hash of another program may be long
local answer = { redis.call('pttl', lock), holder[1] or '', tonumber(holder[2]) or 0 }
if token then
  answer[4] = redis.call('get', token) or 0
end
return answer
