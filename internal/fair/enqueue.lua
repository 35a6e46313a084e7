-- enqueue.lua: put a waiter at the end of a fair lock's queue. It stands before acquire.lua.
--
-- Returns  nothing. It defines enqueue, which leaves one who stands in the queue where it is, and raises an error where waiters of
--          Redisson stand in it and the scores are not kept as theirs: each side would take the other's waiters for dead.
local function enqueue(queue, timeouts, owner, how)
  local now, queued = clock(), redis.call('zscore', timeouts, owner)
  local last = redis.call('lindex', queue, -1)
  if how.java == '1' then
    -- Scores are sums, as the wire format has it: each waiter's begins where that of the one before ends.
    if queued then
      return
    end
    local score = last and last ~= owner and redis.call('zscore', timeouts, last)
    local begins = score and tonumber(score) - now or how.busy
    redis.call('zadd', timeouts, begins + how.good + now, owner)
    redis.call('rpush', queue, owner)
    return
  end
  -- Redisson's queue never expires, and this one always does. Its waiters may join this one: then the last one is theirs, whose id has no
  -- dot before the colon.
  if not queued and (redis.call('pttl', timeouts) == -1 or last and string.find(last, '^[^.]*:')) then
    error(redis.error_reply('WRONGTYPE waiters of Redisson queue for this fair lock: use redlatch.WithRedissonFairQueue'), 0)
  end
  redis.call('zadd', timeouts, now + how.good, owner)
  -- Somebody may have deleted the queue alone.
  if not queued or not last then
    redis.call('rpush', queue, owner)
  end
  keep(queue, timeouts, how.good)
end
