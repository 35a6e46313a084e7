-- wake.lua: have one client look into the queue at a given time. It stands before the scripts that make messages due.
--
-- alarm names the client that looks in at alarm_at. It counts while that time is ahead and the client is among the waiters: so whoever
-- removes the client need not change alarm, and rest.lua, which lets a client in, clears what was noted for it. The client may die: rest.lua
-- finds a spare, unless nobody else waits, and whoever waits next becomes it.
--
-- A client that works on tasks has noted their numbers in meta, as the bytes of a field of its id, before it sleeps. The message that is due
-- may be of a task, queue.task: then one is notified that works on it. The alarm may work on others: it passes on what it does not claim.
--
-- Returns  nothing. It defines wake, which does nothing in a pause that has no end, and if the alarm looks in by then, or when its rate
--          allows a claim. In a pause that ends the time is not before its end. It comes before what the script writes: an ACL may
--          forbid to publish. note notes in firsts when a message is due of a task, or nothing, if it is the first, and wake_each does so for
--          each of them: who works on one of them may not be there, or be too busy to pass on the others.
local function sleeper(queue, now)
  local meta, waiters, oldest = queue.meta, queue.waiters, queue.oldest
  if queue.task then
    for first = 0, 900, 100 do
      local all, fields = redis.call('zrevrangebyscore', waiters, '+inf', now, 'limit', first, 100), {}
      for i, client in ipairs(all) do fields[i] = 'w:' .. client end
      for i, numbers in ipairs(#all > 0 and redis.call('hmget', meta, unpack(fields)) or {}) do
        if numbers and string.find(numbers, string.char(queue.task + 48), 1, true) then return all[i] end
      end
      if #all < 100 then return end
    end
    return
  end
  return oldest and redis.call('zrangebyscore', waiters, now, '+inf', 'limit', 0, 1)[1] or
    redis.call('zrevrangebyscore', waiters, '+inf', now, 'limit', 0, 1)[1]
end

local function wake(queue, at, now)
  local meta, waiters = queue.meta, queue.waiters
  if redis.call('exists', waiters) == 0 then
    return
  end
  local head = redis.call('hmget', meta, 'paused', 'alarm', 'alarm_at', 'limited')
  local paused, who, alarm_at = queue.paused or head[1], head[2], tonumber(head[3] or 0)
  if paused == '1' then
    return
  end
  at = math.max(at, tonumber(paused or 0))
  if queue.task and alarm_at > math.max(at, now) then who = nil end -- it may work on others
  if who and not redis.call('zscore', waiters, who) then
    who = nil
  elseif who and alarm_at <= now then
    redis.call('zrem', waiters, who) -- it should be looking in: it comes back unless it is dead
    who = nil
  elseif who and (alarm_at <= at or head[3] == head[4]) then
    return
  end
  -- A channel that nobody hears is that of a client which died. On a cluster only one node's subscribers are counted, so
  -- that a few clients may be notified in vain.
  for _ = 1, 3 do
    who = who or sleeper(queue, string.format('%.0f', now))
    if not who then
      return
    end
    local heard = redis.call('publish', queue.channel .. who, string.format('%.0f', math.max(0, at - now)))
    if heard == 0 and queue.task then redis.call('hdel', meta, 'w:' .. who) end
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

local function note(firsts, task, at)
  local number = task or 0
  if at < (firsts[number] or math.huge) then firsts[number] = at end
end

local function wake_each(queue, firsts, now)
  local numbers = {}
  for number in pairs(firsts) do numbers[#numbers + 1] = number end
  table.sort(numbers, function(a, b) return firsts[a] < firsts[b] end)
  for _, number in ipairs(numbers) do
    queue.task = number > 0 and number or nil
    wake(queue, firsts[number], now)
  end
  queue.task = nil
end
