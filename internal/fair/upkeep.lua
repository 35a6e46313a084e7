-- upkeep.lua: look after waiters of one client in a fair lock's queue, and after whose turn it is.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- ARGV[1]  channel of the waiters, less ':' and a waiter's id
-- ARGV[2]  how long a waiter is good from now, ms
-- ARGV[3]  1 to keep the scores as Java does: they are left alone
-- ARGV[4..n+3]  the waiters
--
-- Returns  an array of integers: the position, from 1, of the one among the waiters whose turn it is, 0 for none; what is
--          left, in ms, of the lock's TTL (-1 for none) or of the time for which the head of the queue is good, if that is
--          less or the lock is free; then the positions of the waiters that are no longer in the queue. If the lock is
--          free, the head has been sent a message unless it is one of the waiters
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local channel, good, java, oldest = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- The list alone may have been deleted, or lost a waiter: then the scores say more than there is.
local listed
if java ~= '1' and redis.call('llen', queue) ~= redis.call('zcard', timeouts) then
  listed = {}
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    listed[waiter] = true
  end
end

local reply, places = { 0, 0 }, {}
local score = clock() + good
for i = 4, #ARGV do
  local waiter = ARGV[i]
  places[waiter] = i - 3
  if listed and not listed[waiter] then
    redis.call('zrem', timeouts, waiter)
  end
  if not redis.call('zscore', timeouts, waiter) then
    reply[#reply + 1] = i - 3
  elseif java ~= '1' then
    redis.call('zadd', timeouts, score, waiter)
  end
end
if java ~= '1' then
  keep(queue, timeouts, good)
end

local head, rest = first(queue, timeouts, java)
local left = redis.call('pttl', lock)
if left == -2 then
  reply[1] = places[head or oldest] or 0
  if head and reply[1] == 0 then
    wake(channel, head)
  end
  left = rest
elseif head and rest >= 0 and (left == -1 or rest < left) then
  left = rest -- a head that is dead by then would keep the lock from the others after its release
end
reply[2] = left
return reply
