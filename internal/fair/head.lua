-- head.lua: whose turn it is in the queue of a fair lock. It stands before the other scripts of this package.
--
-- Returns  nothing. It defines clock, Redis's time in ms; first, which takes dead waiters off the head of the queue and
--          returns the one that is left there, or false, for how many ms it is good, -1 for ever, and whether any was taken
--          off; wake, which sends it a message and returns how many clients received it, -1 if the user may not publish;
--          keep, which has the queue's keys expire some time after its last waiter.
local function clock()
  local time = redis.call('time')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function first(queue, timeouts, java)
  local head = redis.call('lindex', queue, 0)
  local now, dropped = head and clock(), false
  while head do
    local score = redis.call('zscore', timeouts, head)
    if score and tonumber(score) > now then
      return head, tonumber(score) - now, dropped
    elseif not score and java == '1' then
      return head, -1, dropped -- Java's book-keeping stops at it
    end
    redis.call('zrem', timeouts, head)
    redis.call('lpop', queue)
    head, dropped = redis.call('lindex', queue, 0), true
  end
  return false, 0, dropped
end

-- The wire format makes a waiter's channel of its id. What was written before stays, whether or not the user may publish.
local function wake(channel, waiter)
  local received = waiter and redis.pcall('publish', channel .. ':' .. waiter, '0') or 0
  return type(received) == 'number' and received or -1
end

local function keep(queue, timeouts, good)
  local last = redis.call('zrange', timeouts, -1, -1, 'withscores')
  if last[2] then
    local ttl = math.max(tonumber(last[2]) - clock(), 0) + good
    redis.call('pexpire', queue, ttl)
    redis.call('pexpire', timeouts, ttl)
  end
end
