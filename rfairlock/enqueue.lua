-- enqueue.lua: put a waiter at the end of a fair lock's queue. It stands before acquire.lua.
--
-- Returns  nothing. It defines enqueue, which leaves one who stands in the queue where it is, and raises an error where waiters of
--          Redisson stand in it and the scores are not kept as theirs: each side would take the other's waiters for dead.
local function enqueue(queue, timeouts, owner, how)
  local now = clock()
  if how.java == '1' then
    -- Scores are sums, as the wire format has it: each waiter's begins where that of the one before ends.
    if redis.call('zscore', timeouts, owner) then
      return
    end
    local last = redis.call('lindex', queue, -1)
    local score = last and last ~= owner and redis.call('zscore', timeouts, last)
    local begins = score and tonumber(score) - now or how.busy
    redis.call('zadd', timeouts, begins + how.good + now, owner)
    redis.call('rpush', queue, owner)
    return
  end
  -- Redisson's queue never expires, and this one always does. In a mixed one a score may show Redisson's waiter: those of this layout are
  -- good for five minutes at most, Redisson adds as much to the end of the one before.
  local last = redis.call('zrange', timeouts, -1, -1, 'withscores')
  if last[2] and (tonumber(last[2]) > now + 301000 or redis.call('pttl', timeouts) == -1) then
    error(redis.error_reply('WRONGTYPE waiters of Redisson queue for this fair lock: use redlatch.WithRedissonFairQueue'), 0)
  end
  local new = redis.call('zadd', timeouts, now + how.good, owner) == 1
  -- Somebody may have deleted the queue alone.
  if new or redis.call('exists', queue) == 0 then
    redis.call('rpush', queue, owner)
  end
  keep(queue, timeouts, how.good)
end
