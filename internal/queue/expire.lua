-- expire.lua: see to messages whose claims or attempts ran out. It stands before claim.lua.
--
-- Returns  nothing. It defines expire, which makes up to 100 messages due again whose claims ran out, and exhaust, which makes
--          dead letters of messages that have no attempts left, and adds each to the reply: its member, nothing, its attempts, the
--          time, the last error. Of what an ACL forbids, each message is left where it is.
local function expire(due, flight, now)
  local expired = redis.call('zrangebyscore', flight, '-inf', now, 'withscores', 'limit', 0, 100)
  for i = 1, #expired, 2 do
    redis.call('zadd', due, expired[i + 1], expired[i])
    redis.call('zrem', flight, expired[i])
  end
end

local function exhaust(due, dead, errors, spent, now, reply)
  for _, message in ipairs(spent) do
    local member, id, r = message.member, string.sub(message.member, 17), #reply
    if redis.call('hexists', errors, id) == 0 then
      redis.call('hset', errors, id, 'no attempt ended within the visibility')
    end
    redis.call('zadd', dead, now, member)
    redis.call('zrem', due, member)
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = member, '', message.attempts, now
    reply[r + 5] = redis.call('hget', errors, id)
  end
end

