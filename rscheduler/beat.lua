-- beat.lua: note that a process runs the scheduler, write what it has registered, and say what is to be offered.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  marks: hash, job -> 'last text', or 'last,next-until text' while ticks run late: up to which instant ticks were offered;
--          which one runs late next, or from when on, and until when others do, µs; the text of the schedule
-- KEYS[3]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[4]  alive: sorted set, processes by the time until which they count as running, µs
-- KEYS[5]  meta: hash; up is the time since which there was one without a gap, µs; token is the last token of a run
-- KEYS[6]  bodies: hash, the ids of the ticks in the queue
-- ARGV[1]  the process
-- ARGV[2]  for how long it counts as running, µs; 0 if it stops
-- ARGV[3..n]  for each job: its name, the text of its schedule, 1 to set that or 0 to write it only if there is none, and of a schedule
--          that is written its first mark, µs from now, or nothing if it has none
--
-- Returns  an array: the time in µs; then for each job the text of its schedule, the text that it replaced or nothing, its mark or
--          nothing, 1 if the tick that runs late next, or else the last one, is in the queue
local jobs, marks, seen, alive, meta, bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local process, length, items = ARGV[1], tonumber(ARGV[2]), ARGV

local now = touch(alive, meta, process, length)
local stamp = string.format('%.0f', now)
redis.call('hdel', marks, '') -- does nothing, and fails if HDEL would after a schedule was written
local reply = {stamp}
for i = 3, #items, 4 do
  local job, text, force, first = items[i], items[i + 1], items[i + 2], items[i + 3]
  local current, replaced = redis.call('hget', jobs, job), ''
  if not current or force == '1' and current ~= text then
    redis.call('hset', jobs, job, text)
    redis.call('hdel', marks, job)
    if first ~= '' then redis.call('hset', marks, job, string.format('%.0f', now + first) .. ' ' .. text) end
    replaced = current or '' -- not in one assignment with current: gopher-lua, of the embedded server, would take the new value
    current = text
  end
  redis.call('hset', seen, job, stamp)
  local mark, r = redis.call('hget', marks, job) or '', #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = current, replaced, mark
  reply[r + 4] = redis.call('hexists', bodies, job .. '@' .. (string.match(mark, '^%d+,(%d+)') or string.match(mark, '^%d+') or ''))
end
return reply
