-- settle.lua: end a reservation. A closed order has its item back in stock.
--
-- KEYS[1]  stock: string, items left
-- KEYS[2]  orders: hash, order -> reserved, paid or closed
-- KEYS[3]  times to pay: sorted set, order -> ms
-- ARGV[1]  order
-- ARGV[2]  paid or closed
--
-- Returns  1  done
--          0  the order is not reserved: it is paid or closed already
local stock, orders, due = KEYS[1], KEYS[2], KEYS[3]
local order, state = ARGV[1], ARGV[2]

if redis.call('hget', orders, order) ~= 'reserved' then
  return 0
end
redis.call('hset', orders, order, state)
redis.call('zrem', due, order)
if state == 'closed' then
  redis.call('incr', stock)
end
return 1
