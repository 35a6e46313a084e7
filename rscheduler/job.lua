-- job.lua: look at one job, pause or resume it.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[3]  paused: hash, job -> why; only for those two
-- ARGV[1]  the job
-- ARGV[2]  look, pause or resume
-- ARGV[3]  why, for a pause
--
-- Returns  an array: 1 if there is such a job, 0 if not; the time in µs; when a process was last here that has registered it
local jobs, seen, paused = KEYS[1], KEYS[2], KEYS[3]
local job, verb, why = ARGV[1], ARGV[2], ARGV[3]

local time = redis.call('time')
local found = redis.call('hexists', jobs, job)
if found == 1 and verb == 'pause' then
  redis.call('hset', paused, job, why)
elseif verb == 'resume' then
  redis.call('hdel', paused, job)
end
return {found, string.format('%.0f', time[1] * 1000000 + time[2]), redis.call('hget', seen, job) or '0'}
