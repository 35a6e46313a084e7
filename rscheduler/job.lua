-- job.lua: look at one job, pause, resume or remove it, or drop a tick of it.
--
-- KEYS[1]  runs: list of the results of the job, newest first
-- KEYS[2]  removed: string, the call that has removed the job; kept for an hour
-- KEYS[3]  jobs: hash, job -> text of its schedule
-- KEYS[4]  seen: hash, job -> when a process was last here that has registered it, µs
-- KEYS[5]  paused: hash, job -> why
-- KEYS[6]  pauses: hash, job -> its last hundred pauses, each as 'from-until ', µs, in 16 digits; the last one may have no end yet
-- KEYS[7]  marks: hash, see beat.lua
-- KEYS[8..12]  other hashes that have a field for each job
-- ARGV[1]  the job
-- ARGV[2]  look, runs, pause, resume, remove or drop
-- ARGV[3]  for runs, how many results are wanted; for a pause, why; for a removal, the id of this call; the instant of a tick, µs, to
--          drop it if no process has the job
-- ARGV[4]  for how long a process counts as running, µs
--
-- Returns  an array: 1 if there is, or was, such a job, 0 if not; the time in µs; 1 if a process has it, 0 if none has for that long; the
--          results that are wanted
local runs, removed, jobs, seen, paused, pauses, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local job, verb, detail, length = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local found = redis.call('hexists', jobs, job)
local had = now - tonumber(redis.call('hget', seen, job) or '0') <= length and 1 or 0
local kept = redis.call('hget', pauses, job) or ''
local pausing = string.sub(kept, -1) == '-'
local reply = {found, string.format('%.0f', now), had}
if verb ~= 'look' and verb ~= 'runs' then
  redis.call('hdel', paused, '') -- fails if HDEL would below; a full Redis refuses only a script's first write, and not this one
end
if verb == 'runs' then
  for i, result in ipairs(redis.call('lrange', runs, 0, detail - 1)) do
    reply[3 + i] = result
  end
elseif found == 1 and verb == 'pause' then
  if not pausing then
    redis.call('hset', pauses, job, string.sub(kept, -34 * 99) .. string.format('%016.0f-', now))
  end
  redis.call('hset', paused, job, detail)
elseif verb == 'resume' then
  if pausing then
    redis.call('hset', pauses, job, kept .. string.format('%016.0f ', now))
  end
  redis.call('hdel', paused, job)
elseif verb == 'remove' then -- its ticks in the queue are dropped when they are due
  if found == 1 then
    redis.call('set', removed, detail, 'px', 3600000)
  elseif redis.call('get', removed) == detail then -- this call ran before, and the reply was lost
    reply[1] = 1
  end
  redis.call('del', runs)
  for i = 3, #KEYS do
    redis.call('hdel', KEYS[i], job)
  end
elseif found == 1 and verb == 'drop' and had == 0 then
  -- The next process that has the job finds the tick missed, or has it run if it is that of a fixed delay.
  local last, text = string.match(redis.call('hget', marks, job) or '', '^(%d+)%S* (.*)$')
  if last and tonumber(last) >= tonumber(detail) then
    redis.call('hset', marks, job, string.format('%.0f', tonumber(detail) - 1) .. ' ' .. text)
  end
end
return reply
