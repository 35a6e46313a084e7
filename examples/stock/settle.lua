-- settle.lua: end a reservation. A closed order has its item back in stock.
--
-- KEYS[1]  stock: string, items left
-- KEYS[2]  orders: hash, order -> reserved, paid or closed
-- KEYS[3]  times to pay: sorted set, order -> ms
-- ARGV[1]  order
-- ARGV[2]  paid or closed
--
-- Returns  1  done, or it is paid already, by an earlier sending of this call perhaps
--          0  the order is not reserved: it is closed already, or is paid and cannot be closed
local stock, orders, due = KEYS[1], KEYS[2], KEYS[3]
local order, state = ARGV[1], ARGV[2]

local before = redis.call('hget', orders, order)
if before == 'paid' and state == 'paid' then
  return 1
end
if before ~= 'reserved' then
  return 0
end
redis.call('hset', orders, order, state)
redis.call('zrem', due, order)
if state == 'closed' then
  redis.call('incr', stock)
end
return 1
