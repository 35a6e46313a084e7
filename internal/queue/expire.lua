-- expire.lua: see to messages whose claims or attempts ran out. It stands before claim.lua.
--
-- Returns  nothing. It defines expire, which makes up to 100 messages due again whose claims ran out, and exhaust, which makes
--          dead letters of messages that have no attempts left. Of what an ACL forbids, each message is left where it is.
local function expire(due, flight, now)
  local expired = redis.call('zrangebyscore', flight, '-inf', now, 'withscores', 'limit', 0, 100)
  for i = 1, #expired, 2 do
    redis.call('zadd', due, expired[i + 1], expired[i])
    redis.call('zrem', flight, expired[i])
  end
end

local function exhaust(due, dead, errors, members, now)
  for _, member in ipairs(members) do
    local id = string.sub(member, 17)
    if redis.call('hexists', errors, id) == 0 then
      redis.call('hset', errors, id, 'no attempt ended within the visibility')
    end
    redis.call('zadd', dead, now, member)
    redis.call('zrem', due, member)
  end
end

