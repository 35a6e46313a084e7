-- inspect.lua: look at who has a place at a barrier.
--
-- KEYS[1]  the barrier: string, how many participants a round has
-- KEYS[2]  who has arrived: sorted set, participant -> until when its place is good, ms
-- KEYS[3]  who has entered a double barrier: sorted set as KEYS[2]; missing for others
-- KEYS[4]  who leaves a double barrier: sorted set as KEYS[2]; missing for others
-- ARGV[1]  how many participants of each key to list, at most
--
-- Returns  an array: how many participants a round has, 0 if the barrier is not in use; then for each key from KEYS[2] on how many
--          have a place that is good, how many of them are listed, and of each of these, those whose places end first before
--          others, its id and for how many ms its place is good
local barrier, arrived, inside, leaving, most = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])

local parties = tonumber(redis.call('get', barrier) or 0)
if not parties then
  return redis.error_reply('WRONGTYPE the key holds no number of participants')
end
local now, answer = clock(), { parties }
local good = '(' .. string.format('%.0f', now)
for _, places in ipairs({ arrived, inside, leaving }) do
  local listed = redis.call('zrangebyscore', places, good, '+inf', 'withscores', 'limit', 0, most)
  answer[#answer + 1] = redis.call('zcount', places, good, '+inf')
  answer[#answer + 1] = #listed / 2
  for p = 1, #listed, 2 do
    answer[#answer + 1] = listed[p]
    answer[#answer + 1] = tonumber(listed[p + 1]) - now
  end
end
return answer
