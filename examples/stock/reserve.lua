-- reserve.lua: take an item out of stock for an order.
--
-- KEYS[1]  stock: string, items left
-- KEYS[2]  orders: hash, order -> reserved, paid or closed
-- KEYS[3]  times to pay: sorted set, order -> ms
-- ARGV[1]  order
-- ARGV[2]  time to pay, ms
--
-- Returns  1  reserved, or it was before
--          0  sold out
local stock, orders, due = KEYS[1], KEYS[2], KEYS[3]
local order, time = ARGV[1], ARGV[2]

if redis.call('hexists', orders, order) == 1 then
  return 1
end
if tonumber(redis.call('get', stock) or '0') < 1 then
  return 0
end
local now = redis.call('time')
redis.call('decr', stock)
redis.call('hset', orders, order, 'reserved')
redis.call('zadd', due, now[1] * 1000 + math.floor(now[2] / 1000) + time, order)
return 1
