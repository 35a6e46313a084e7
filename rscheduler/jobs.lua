-- jobs.lua: list about a hundred of the jobs, and of the runs that go on.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[3]  paused: hash, job -> why
-- KEYS[4]  marks: hash, see beat.lua
-- KEYS[5]  running: hash, see begin.lua
-- KEYS[6]  last: hash, job -> the last result
-- KEYS[7]  claims: hash, id of a tick -> its claim
-- ARGV[1]  cursor of the jobs, 0 at first; nothing after the last one
-- ARGV[2]  cursor of the runs, as well
--
-- Returns  an array: the time in µs; the cursors of the next call; the number of jobs; for each its name, text, when it was seen, µs, 1 if
--          it is paused, why, its mark, its last result or nothing; then of each run its token and what is shown of it. A job or run may come
--          again
local jobs, seen, paused, marks, running, last, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local here, there = ARGV[1], ARGV[2]

local none, time = {'0', {}}, redis.call('time')
local found = here == '' and none or redis.call('hscan', jobs, here, 'count', 100)
local going = there == '' and none or redis.call('hscan', running, there, 'count', 100)
local next, all = found[1] ~= '0' and found[1] or '', found[2]
local after, runs = going[1] ~= '0' and going[1] or '', going[2]
local reply = {string.format('%.0f', time[1] * 1000000 + time[2]), next, after, #all / 2}
for i = 1, #all, 2 do
  local job, why, r = all[i], redis.call('hget', paused, all[i]), #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = job, all[i + 1], redis.call('hget', seen, job) or '0'
  reply[r + 4], reply[r + 5] = why and 1 or 0, why or ''
  reply[r + 6], reply[r + 7] = redis.call('hget', marks, job) or '', redis.call('hget', last, job) or ''
end
for i = 2, #runs, 2 do
  local state, claim, token, id, shown = string.match(runs[i], '^(%a) (%d+) (%d+) %d+ %d+ ([^\n]*)\n(.*)$')
  if state == 'r' and string.sub(redis.call('hget', claims, id) or '', 1, 17) == 'h' .. claim then
    reply[#reply + 1], reply[#reply + 2] = token, shown
  end
end
return reply
