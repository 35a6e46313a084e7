-- decide.lua: accept a user's order if there is stock. One that was accepted is accepted again, so that nothing is lost if the
-- answer was, or if the door died before it offered the order.
--
-- KEYS[1]  stock: string, items left
-- KEYS[2]  users who have an order: set
-- ARGV[1]  user
--
-- Returns  1  accepted, now or before
--          0  sold out
local stock, users = KEYS[1], KEYS[2]
local user = ARGV[1]

if redis.call('sismember', users, user) == 1 then
  return 1
end
if tonumber(redis.call('get', stock) or '0') < 1 then
  return 0
end
redis.call('decr', stock)
redis.call('sadd', users, user)
return 1
