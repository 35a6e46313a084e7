-- stats.lua: count messages by state, and say for how long one has waited.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  dead: sorted set of dead letters
-- KEYS[4]  meta: hash
-- KEYS[5]  errors: hash, id -> text of the last error
-- KEYS[6]  groups: sorted set, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  the lane to begin with, see lanes.lua; nothing in the first call
-- ARGV[3]  how many lanes to count
--
-- Returns  an array: delayed, ready, in flight, dead; 0 if the queue is not paused, 1 if its pause has no end, or when it ends, µs; how
--          many of the first three have an error; for how long the first one has been due that waits, µs, or 0; of how many groups a
--          message waits for another; how many messages of each priority wait, from 1 to 9; and the lane for the next call, which adds
--          to what is delayed, ready and of a priority, or nothing; or one negative number, the layout's version, if it is higher than the
--          caller's
local due, flight, dead, meta, errors, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3])

local head = redis.call('hmget', meta, 'layout', 'paused')
local version, paused = tonumber(head[1] or 0), tonumber(head[2] or 0)
if version > tonumber(layout) then
  return {-version}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
if paused > 1 and paused <= now then
  paused = 0
end
local expired = from == '' and redis.call('zcount', flight, '-inf', exact(now)) or 0
local ready, delayed, oldest, priorities = 0, 0, now, {0, 0, 0, 0, 0, 0, 0, 0, 0}
local lane, first = next_lane(due, from == '' and exact(removed + width) or from)
while lane and most > 0 do
  local last = split(lane, now)
  local there = redis.call('zcount', due, exact(lane), exact(last))
  local later = redis.call('zcount', due, '(' .. exact(last), lane < 0 and exact(lane + width - 1) or '+inf')
  ready, delayed = ready + there, delayed + later
  if there > 0 then oldest = math.min(oldest, due_at(first)) end
  local priority = math.floor(-lane / width % 1024 / 101)
  priorities[priority] = (priorities[priority] or 0) + there + later
  most = most - 1
  if lane < 0 then lane, first = next_lane(due, exact(lane + width)) else lane = nil end
end
if expired > 0 then
  oldest = math.min(oldest, tonumber(redis.call('zrange', flight, 0, 0, 'withscores')[2]))
end
local held = redis.call('zcard', flight) - expired
local given_up = redis.call('zcard', dead) -- each of which has an error
local failed = math.max(0, redis.call('hlen', errors) - given_up) -- their texts may have been evicted
local blocked = redis.call('zlexcount', groups, '[w', '(x')
priorities[10] = lane and exact(lane) or ''
return {delayed, ready + expired, held, given_up, paused, failed, now - oldest, blocked, unpack(priorities)}
