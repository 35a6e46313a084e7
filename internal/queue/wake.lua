-- wake.lua: have one client look into the queue at a given time. It stands before the scripts that make messages due.
--
-- The client that alarm names looks in at alarm_at as long as it is among the waiters: it enters with wait.lua, which notes a new time
-- for it or none, and whoever removes it need not change either.
--
-- Returns  nothing. It defines wake, which does nothing while the queue is paused, and if the alarm looks in by then. It comes before
--          what the script writes: an ACL may forbid to publish.
local function wake(queue, at, now)
  local meta, waiters = queue.meta, queue.waiters
  if redis.call('exists', waiters) == 0 then
    return
  end
  local head = redis.call('hmget', meta, 'paused', 'alarm', 'alarm_at')
  local listens, alarm_at = head[2] and redis.call('zscore', waiters, head[2]), tonumber(head[3] or 0)
  if head[1] and not queue.resumes or listens and alarm_at > now and alarm_at <= at then
    return
  end
  local who = listens and head[2]
  -- A channel that nobody hears is that of a client which died. On a cluster only one node's subscribers are counted, so
  -- that a few clients may be notified in vain.
  for _ = 1, 3 do
    if not who and queue.oldest then
      who = redis.call('zrangebyscore', waiters, string.format('%.0f', now), '+inf', 'limit', 0, 1)[1]
    end
    who = who or redis.call('zrevrangebyscore', waiters, '+inf', string.format('%.0f', now), 'limit', 0, 1)[1]
    if not who then
      return
    end
    local heard = redis.call('publish', queue.channel .. who, string.format('%.0f', math.max(0, at - now)))
    if heard == 0 or at <= now then
      redis.call('zrem', waiters, who)
    else
      redis.call('hset', meta, 'alarm', who, 'alarm_at', string.format('%.0f', at))
    end
    if heard > 0 then
      return
    end
    who = nil
  end
end

