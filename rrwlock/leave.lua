-- leave.lua: take back a writer that gave up waiting, and what it may have been granted meanwhile.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms
-- ARGV[1]  channel of its waiters
-- ARGV[2]  owner
--
-- Returns  0  the owner did not hold the write lock; if its mark was the last one that held readers back, all were woken
--          n  released, and free; one message sent to ARGV[1], which n - 1 clients received (on a cluster, those of this node)
--         -1  released, and free; the user may not publish to ARGV[1]
local lock, writers = KEYS[1], KEYS[2]
local channel, owner = ARGV[1], ARGV[2]

local marked = redis.call('zrem', writers, owner)
if redis.call('hexists', lock, owner .. ':write') == 1 then
  redis.call('del', lock)
  local received = redis.pcall('publish', channel, '1')
  return type(received) == 'number' and 1 + received or -1
end
if marked == 1 and redis.call('hget', lock, 'mode') ~= 'write' then
  local time = redis.call('time')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if redis.call('zcount', writers, '(' .. string.format('%.0f', now), '+inf') == 0 then
    redis.pcall('publish', channel, '1')
  end
end
return 0
