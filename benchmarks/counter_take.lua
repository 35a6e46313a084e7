-- counter_take.lua: take a token if there is one.
--
-- KEYS[1]  the counter: string, the tokens left
--
-- Returns  0  there is none
--          1  taken
local counter = KEYS[1]
if tonumber(redis.call('GET', counter) or 0) < 1 then
  return 0
end
redis.call('DECR', counter)
return 1
