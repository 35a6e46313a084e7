-- jobs.lua: list the jobs.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[3]  paused: hash, job -> why
-- KEYS[4]  marks: hash, see beat.lua
-- KEYS[5]  running: hash, see begin.lua
-- KEYS[6]  last: hash, job -> the last result
-- KEYS[7]  claims: hash, id of a tick -> its claim
--
-- Returns  an array: the time in µs, the number of jobs; for each its name, text, when it was seen, µs, 1 if it is paused, why, its
--          mark, its last result or nothing; then of each run what is shown of it
local jobs, seen, paused, marks, running, last, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

local time = redis.call('time')
local all = redis.call('hgetall', jobs)
local reply = {string.format('%.0f', time[1] * 1000000 + time[2]), #all / 2}
for i = 1, #all, 2 do
  local job, why, r = all[i], redis.call('hget', paused, all[i]), #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = job, all[i + 1], redis.call('hget', seen, job) or '0'
  reply[r + 4], reply[r + 5] = why and 1 or 0, why or ''
  reply[r + 6], reply[r + 7] = redis.call('hget', marks, job) or '', redis.call('hget', last, job) or ''
end
local runs = redis.call('hgetall', running)
for i = 2, #runs, 2 do
  local state, claim, id, shown = string.match(runs[i], '^(%a) (%d+) %d+ %d+ ([^\n]*)\n(.*)$')
  if state == 'r' and string.sub(redis.call('hget', claims, id) or '', 1, 17) == 'h' .. claim then
    reply[#reply + 1] = shown
  end
end
return reply
