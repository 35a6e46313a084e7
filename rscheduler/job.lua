-- job.lua: look at one job, pause or resume it, or drop a tick of it.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[3]  paused: hash, job -> why
-- KEYS[4]  marks: hash, see beat.lua
-- ARGV[1]  the job
-- ARGV[2]  look, pause, resume or drop
-- ARGV[3]  why, for a pause; the instant of the tick, µs, to drop it if no process has the job
-- ARGV[4]  for how long a process counts as running, µs
--
-- Returns  an array: 1 if there is such a job, 0 if not; the time in µs; 1 if a process has it, 0 if none has for that long
local jobs, seen, paused, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local job, verb, detail, length = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local found = redis.call('hexists', jobs, job)
local had = now - tonumber(redis.call('hget', seen, job) or '0') <= length and 1 or 0
if found == 1 and verb == 'pause' then
  redis.call('hset', paused, job, detail)
elseif verb == 'resume' then
  redis.call('hdel', paused, job)
elseif found == 1 and verb == 'drop' and had == 0 then
  -- The next process that has the job finds the tick missed, or has it run if it is that of a fixed delay.
  local last, text = string.match(redis.call('hget', marks, job) or '', '^(%d+) (.*)$')
  if last and tonumber(last) >= tonumber(detail) then
    redis.call('hset', marks, job, string.format('%.0f', tonumber(detail) - 1) .. ' ' .. text)
  end
end
return {found, string.format('%.0f', now), had}
