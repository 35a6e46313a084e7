-- try.lua: find out what an ACL forbids before a script changes something. It stands after lanes.lua, before scripts that change groups.
--
-- Returns  nothing. It defines some_grouped, which returns whether one of some members has a group; and try, which changes nothing, and
--          fails if the user may not do what order.lua, group.lua and removed.lua do, and have a client look in.
local function some_grouped(members)
  for _, member in ipairs(members) do
    if is_grouped(member) then return true end
  end
end

local function try(queue)
  local due, groups, places, waiters = queue.due, queue.groups, queue.places, queue.waiters
  redis.call('zrangebylex', groups, '-', '-')
  redis.call('zadd', groups, 'xx', 0, '')
  redis.call('zscore', due, '')
  redis.call('zmscore', due, '')
  redis.call('zrem', due, '')
  redis.call('hget', places, '')
  redis.call('hmget', places, '')
  redis.call('hdel', places, '')
  redis.call('hset', places, '', '')
  redis.call('hdel', places, '')
  if redis.call('exists', waiters) == 1 then
    redis.call('zrevrangebyscore', waiters, 0, 0)
    redis.call('publish', queue.channel .. 'none', '')
  end
end

