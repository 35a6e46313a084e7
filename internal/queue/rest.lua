-- rest.lua: note a client that has nothing to claim among those that hear wake-ups. It stands before the scripts that do so.
--
-- In meta, alarm is the client that looks in at alarm_at, and spare the one that does at spare_at should alarm have died; limited is
-- alarm_at if the alarm's rate allows nothing before.
--
-- Returns  nothing. It defines rest, which is told for how long the client listens, how much later than the alarm a spare looks in, both in
--          µs; when something is due, µs, or nothing; of which tasks it wants messages, a table of numbers.lua, if it works on tasks; and
--          whether only its rate makes it wait until then. It returns in how many µs the client is to look in, or -1 if it is to wait for
--          a wake-up.
local function rest(queue, client, listens, later, at, now, counts, limited)
  local meta, waiters, channel = queue.meta, queue.waiters, queue.channel
  -- Those that died, and first: a full Redis allows this write, and then the rest of the script.
  for _, who in ipairs(counts and redis.call('zrangebyscore', waiters, '-inf', string.format('%.0f', now)) or {}) do
    redis.call('hdel', meta, 'w:' .. who)
  end
  redis.call('zremrangebyscore', waiters, '-inf', string.format('%.0f', now))
  redis.call('zadd', waiters, string.format('%.0f', now + listens), client)
  redis.call('pexpire', waiters, 60000)
  local new = counts and redis.call('hset', meta, 'w:' .. client, numbers_in(counts)) == 1
  for _, field in ipairs(new and redis.call('zcard', waiters) == 1 and redis.call('hgetall', meta) or {}) do
    local who = string.match(field, '^w:(.*)$') -- of another: the caller is new and alone, so they have died
    if who and who ~= client then redis.call('hdel', meta, field) end
  end
  local alarm, alarm_at, spare, spare_at = unpack(redis.call('hmget', meta, 'alarm', 'alarm_at', 'spare', 'spare_at'))
  local function covers(who, set, limit)
    return who and tonumber(set) > now and tonumber(set) <= limit and redis.call('zscore', waiters, who)
  end
  -- The caller's timer is stopped. While nothing is due nobody sees to it that the others live: the next message has one notified.
  if alarm == client or not at and not (counts and covers(alarm, alarm_at, math.huge)) then
    if not at then redis.call('hdel', meta, 'alarm') end -- else the caller takes its place below
    alarm = nil
  end
  if not at and alarm then at = tonumber(alarm_at) end -- for a task that the caller does not work on
  if not at or spare == client then
    redis.call('hdel', meta, 'spare')
    spare = nil
  end
  if not at then return -1 end
  local covered = covers(alarm, alarm_at, at)
  if covered then at = tonumber(alarm_at) end -- the next message may rely on it
  local spared = spare ~= alarm and covers(spare, spare_at, at + later)
  if covered then
    if spared then return -1 end
    redis.call('hset', meta, 'spare', client, 'spare_at', string.format('%.0f', at + later))
    return at + later - now
  end
  local stamp = string.format('%.0f', at)
  redis.call('hset', meta, 'alarm', client, 'alarm_at', stamp, unpack(limited and {'limited', stamp} or {}))
  -- The caller may die too, so one that sleeps is asked to look after it, unless one will.
  for _, who in ipairs(spared and {} or redis.call('zrevrange', waiters, 0, 2)) do
    if who ~= client and redis.call('publish', channel .. who, string.format('+%.0f', at + later - now)) > 0 then
      redis.call('hset', meta, 'spare', who, 'spare_at', string.format('%.0f', at + later))
      break
    end
  end
  return at - now
end
