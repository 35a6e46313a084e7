-- decide.lua: accept a user's order if there is stock and it is the first one.
--
-- KEYS[1]  stock: string, items left
-- KEYS[2]  users who have an order: set
-- ARGV[1]  user
--
-- Returns  1  accepted
--          0  sold out
--         -1  the user has an order
local stock, users = KEYS[1], KEYS[2]
local user = ARGV[1]

if redis.call('sismember', users, user) == 1 then
  return -1
end
if tonumber(redis.call('get', stock) or '0') < 1 then
  return 0
end
redis.call('decr', stock)
redis.call('sadd', users, user)
return 1
