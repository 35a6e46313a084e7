-- remove.lua: remove a job. Its ticks in the queue are dropped when they are due.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  runs: list of its results
-- KEYS[3..9]  hashes that have a field for each job
-- ARGV[1]  the job
--
-- Returns  1 if there was such a job, 0 if not
local jobs, runs, job = KEYS[1], KEYS[2], ARGV[1]

for i = 3, 9 do
  redis.call('hdel', KEYS[i], job)
end
redis.call('del', runs)
return redis.call('hdel', jobs, job)
