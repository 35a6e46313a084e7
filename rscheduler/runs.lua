-- runs.lua: list the results of a job.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  runs: list of the results of the job, newest first
-- ARGV[1]  the job
-- ARGV[2]  how many
--
-- Returns  an array: 1 if there is such a job, 0 if not; the results
local jobs, runs, job, most = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])

local reply = redis.call('lrange', runs, 0, most - 1)
table.insert(reply, 1, redis.call('hexists', jobs, job))
return reply
