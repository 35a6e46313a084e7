-- beat.lua: note that a process runs the scheduler, and say what it has to see to.
--
-- KEYS[1]  meta: hash; layout is the version of the keys; up is the time since which some process has been running without a gap, and
--          until when it counts as running, µs; changed is when a definition was written or removed, µs; token is the last token of a run
-- KEYS[2]  alive: sorted set, processes by the time until which they count as running, µs
-- KEYS[3]  jobs: sorted set, the name of each job by its next tick, µs, or +inf
-- KEYS[4]  left: sorted set, processes that have stopped by the time until which others are waited for, µs
-- ARGV[1]  the process
-- ARGV[2]  for how long it counts as running, µs; negative if it stops
-- ARGV[3]  how long after its time a tick is looked for, µs
-- ARGV[4]  for how many jobs at most
--
-- Returns  an array: the time, µs; changed; then the jobs whose next tick is overdue. Or a single number, -v for keys of the version v that this library does not read
local meta, alive, jobs, left = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local process, length, patience, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local head = redis.call('hmget', meta, 'layout', 'up', 'until', 'changed')
local other = foreign(head)
if other then return {-other} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp, up = string.format('%.0f', now), tonumber(head[2] or 0)
redis.call('zremrangebyscore', alive, '-inf', stamp)
redis.call('zremrangebyscore', left, '-inf', stamp)
if up == 0 or up > now or tonumber(head[3] or 0) < now then up = now end -- later than now if the clock has stepped back
if length > 0 then
  redis.call('zadd', alive, string.format('%.0f', now + length), process)
else
  redis.call('zadd', left, string.format('%.0f', now - length), process)
  redis.call('zrem', alive, process)
end
local last = redis.call('zrange', alive, -1, -1, 'withscores')[2]
redis.call('hset', meta, 'layout', 2, 'up', string.format('%.0f', up), 'until', string.format('%.0f', tonumber(last or 0)))
local overdue = length > 0 and redis.call('zrangebyscore', jobs, '-inf', string.format('%.0f', now - patience), 'limit', 0, most) or {}
return {stamp, head[4] or '0', overdue}
