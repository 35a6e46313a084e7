-- acquire.lua: take a fair lock if it is free and it is the owner's turn; otherwise stand in its queue.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  the queue: list of waiters, the next one first
-- KEYS[3]  their scores: sorted set, waiter -> until when it is good, ms
-- ARGV[1]  channel of the waiters, less ':' and a waiter's id
-- ARGV[2]  owner
-- ARGV[3]  lease, ms
-- ARGV[4]  an owner from whom the lock passes to the new one if that owner holds it; empty for none
-- ARGV[5]  1 to look at the type of a busy key
-- ARGV[6]  1 to stand in the queue if it is refused; it may hold the lock by an earlier try
-- ARGV[7]  how long a waiter is good, ms
-- ARGV[8]  1 to keep the scores as Java does: each grant lowers those that remain
--
-- Returns  -2  acquired, now or by an earlier try; the owner waits no longer
--          -1  busy, and the key has no TTL
--           n  busy for n ms at most, unless it is renewed; or free, but it is the turn of another, who is good for n ms
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local channel, owner, lease, from, verify = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local waits, good, java = ARGV[6], tonumber(ARGV[7]), ARGV[8]

local left = redis.call('pttl', lock)
local head, rest, dropped = first(queue, timeouts, java)
local mine = left == -2 and (not head or head == owner)
-- An error for what is no hash.
if left ~= -2 and (from ~= '' or verify == '1' or left == -1) and redis.call('hexists', lock, 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key holds a read-write lock')
end
local passes = left ~= -2 and from ~= '' and redis.call('hexists', lock, from) == 1
local again = left ~= -2 and waits == '1' and redis.call('hexists', lock, owner) == 1
if passes or again then
  -- All that a user may not be allowed comes before the first write that counts. A late attempt's owner may have it for longer.
  redis.call('pexpire', lock, again and math.max(left, tonumber(lease)) or lease)
  redis.call('lrem', queue, 0, owner)
  redis.call('zrem', timeouts, owner)
  redis.call('hdel', lock, '')
  if not again then -- it may have more levels by now
    redis.call('hset', lock, owner, 1) -- before the other one goes: the key must stay, and its TTL with it
  end
  redis.call('hdel', lock, passes and from or '')
  return -2
end
if mine then
  if head or java == '1' then
    redis.call('zrem', timeouts, owner)
    redis.call('lpop', queue)
  end
  if java == '1' then
    for _, waiter in ipairs(redis.call('zrange', timeouts, 0, -1)) do
      redis.call('zincrby', timeouts, -good, waiter)
    end
  end
  redis.call('hset', lock, owner, 1)
  -- A user that may not PEXPIRE must not leave a lock that never expires.
  local expires = redis.pcall('pexpire', lock, lease)
  if type(expires) == 'table' then
    redis.call('hdel', lock, owner)
    return expires
  end
  return -2
end
if waits == '1' then
  local queued, refusal = pcall(enqueue, queue, timeouts, owner, { good = good, java = java, busy = left })
  if not queued then
    -- A user that may not PEXPIRE, or RPUSH, must not leave a queue that never expires.
    redis.call('zrem', timeouts, owner)
    redis.call('lrem', queue, 0, owner)
    return type(refusal) == 'table' and refusal or redis.error_reply(refusal)
  end
end
if left == -2 then
  left = rest
  -- Otherwise it was told when the lock was released. A second message would cost it another attempt.
  if dropped then
    wake(channel, head)
  end
end
return left
