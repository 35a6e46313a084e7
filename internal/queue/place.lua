-- place.lua: put a message into a queue, or take one out, for scripts of other packages. It stands after wake.lua.
--
-- Returns  nothing. It defines put, which puts a message that is due at a time, µs, unless its id is taken; withdraw, which takes one out
--          that waits, and returns whether there was one; holds, which returns whether a claim is the latest of a message, and goes on; and finish, which takes out a message
--          whose claim the caller holds. What may be refused comes before the first write.
local function put(queue, id, at, payload, now)
  local meta, due, bodies = queue.meta, queue.due, queue.bodies
  if redis.call('hexists', bodies, id) == 1 then return end
  local head = redis.call('hmget', meta, 'last', 'expires')
  local last = math.max(tonumber(head[1] or 0), now) + 1
  local sequence = string.format('%016.0f', last)
  redis.call('zadd', due, 'xx', 0, '') -- does nothing, and fails if ZADD would after the body is there
  if head[2] then
    redis.call('persist', meta)
    redis.call('hdel', meta, 'expires')
  end
  wake({meta = meta, waiters = queue.waiters, channel = queue.channel}, math.max(at, now), now)
  redis.call('hset', bodies, id, sequence .. 'o00000000' .. payload)
  redis.call('zadd', due, string.format('%.0f', at), sequence .. id)
  redis.call('hset', meta, 'last', string.format('%.0f', last), 'layout', 2)
end

local function remove(queue, id)
  local bodies, claims, errors = queue.bodies, queue.claims, queue.errors
  redis.call('hdel', bodies, id)
  redis.call('hdel', claims, id)
  redis.call('hdel', errors, id)
end

local function withdraw(queue, id)
  local due, bodies = queue.due, queue.bodies
  local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
  if redis.call('zrem', due, member) == 0 then return end
  remove(queue, id)
  return true
end

local function holds(claims, id, claim) return string.match(redis.call('hget', claims, id) or '', '^[hr]' .. claim) end

local function finish(queue, member)
  local due, flight = queue.due, queue.flight
  if redis.call('zrem', flight, member) == 0 then redis.call('zrem', due, member) end
  remove(queue, string.sub(member, 17))
end
