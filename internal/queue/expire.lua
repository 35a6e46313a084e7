-- expire.lua: see to messages whose claims or attempts ran out. It stands before claim.lua.
--
-- Returns  nothing. It defines expire, which makes up to 100 messages due again whose claims ran out, and exhaust, which makes
--          dead letters of messages that have no attempts left or were not begun in time, and adds each to the reply: its member,
--          nothing, its attempts, the time, the last error. Of what an ACL forbids, each message is left where it is.
local function expire(due, flight, claims, now)
  local expired = redis.call('zrangebyscore', flight, '-inf', now, 'withscores', 'limit', 0, 100)
  for i = 1, #expired, 2 do
    local member, at = expired[i], expired[i + 1]
    local replaced = string.match(redis.call('hget', claims, string.sub(member, 17)) or '', '^r' .. string.rep('%d', 16) .. '(%d+)')
    redis.call('zadd', due, replaced or at, member)
    redis.call('zrem', flight, member)
    if replaced then redis.call('hdel', claims, string.sub(member, 17)) end
  end
end

local function exhaust(due, dead, errors, spent, now, reply)
  for _, message in ipairs(spent) do
    local member, id, r = message.member, string.sub(message.member, 17), #reply
    if message.why or redis.call('hexists', errors, id) == 0 then
      redis.call('hset', errors, id, message.why or 'no attempt ended within the visibility')
    end
    redis.call('zadd', dead, now, member)
    redis.call('zrem', due, member)
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = member, '', message.attempts, now
    reply[r + 5] = redis.call('hget', errors, id)
  end
end

