-- candidates.lua: who waits for its turn to lead.
--
-- KEYS[1]  the queue of the fair lock: list of waiters, the next one first
-- KEYS[2]  until when each is good: sorted set, waiter -> ms
-- KEYS[3]  their values: hash, see lead.lua
--
-- Returns  an array: of each waiter that is not dead, in order, its id and its value
local queue, timeouts, candidates = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = {}
for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
  local good = redis.call('zscore', timeouts, waiter)
  if not good or tonumber(good) > now then -- without a score Redisson does not count it as dead
    answer[#answer + 1] = waiter
    answer[#answer + 1] = string.match(redis.call('hget', candidates, waiter) or '', '^%d+ (.*)$') or ''
  end
end
return answer
