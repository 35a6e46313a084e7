-- end.lua: end an attempt of a run, or a tick that does not run, and put the job's next tick into the queue. See states.md.
--
-- KEYS[1]  the job: hash
-- KEYS[2]  runs: list of the results of the job, newest first
-- KEYS[3]  jobs: sorted set, see beat.lua
-- KEYS[4]  meta of the queue
-- KEYS[5]  due of the queue
-- KEYS[6]  bodies of the queue
-- KEYS[7]  waiters of the queue
-- KEYS[8]  claims of the queue
-- KEYS[9]  errors of the queue
-- KEYS[10]  flight of the queue
-- ARGV[1]  prefix of the channels of the queue's clients
-- ARGV[2]  the job
-- ARGV[3]  id of the tick
-- ARGV[4]  what follows the names of the fields of its run, see begin.lua
-- ARGV[5]  its claim
-- ARGV[6]  end; wait for another attempt; drop if it did not run
-- ARGV[7]  the result
-- ARGV[8]  how many results are kept
-- ARGV[9]  the instant of the tick, µs; nothing for a manual run
-- ARGV[10]  text of the schedule as the caller knows it
-- ARGV[11]  the next tick by that, µs; + and a delay, µs, from now on; or nothing if there is none
-- ARGV[12]  how much later that is due, µs
-- ARGV[13]  the tick's member in the queue
-- ARGV[14]  the tick that comes if the next one is due already, as it came during the run, µs; or nothing
--
-- Returns  an array: ended; or other and the text of the schedule, if it is another one: then nothing was done
local job, runs, jobs, flight = KEYS[1], KEYS[2], KEYS[3], KEYS[10]
local name, id, slot, claim, how, result, keep = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local instant, text, after, jitter, member, second = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local due, bodies, claims = KEYS[5], KEYS[6], KEYS[8]
local queue = {
  meta = KEYS[4], due = due, bodies = bodies, waiters = KEYS[7], claims = claims, errors = KEYS[9], flight = flight, channel = ARGV[1],
}

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
if not holds(claims, id, claim) then return {'ended'} end -- it has ended, or is somebody else's
local have = redis.call('hmget', job, 'schedule', 'next', 'waits', 'done', 'claim' .. slot, 'state' .. slot)
local schedule, next, waits, done, owner, state = unpack(have)
local mine = state and (how == 'drop' or owner == claim and state ~= 'waiting')
if state == 'removed' and how == 'wait' then how = 'end' end -- there is no other attempt
local kept = mine and how ~= 'drop' and schedule and state ~= 'removed'
local plans = how ~= 'wait' and schedule and instant ~= '' and next == instant
if plans and schedule ~= text then return {'other', schedule} end
-- A full Redis refuses only the first write of a script, and not these two. Those that change nothing fail if what follows would.
redis.call('hdel', job, '')
redis.call('zrem', flight, '')
if kept then redis.call('ltrim', runs, 0, math.max(keep, 1) - 1) end
local set = kept and {'last', result} or {}
if kept and how == 'end' then set[3], set[4] = 'ended', string.format('%.0f', now) end
if mine and how == 'wait' then set[#set + 1], set[#set + 2] = 'state' .. slot, 'waiting' end
if plans then
  if string.sub(after, 1, 1) == '+' then after = string.format('%.0f', now + tonumber(after)) end
  if second ~= '' and tonumber(after) <= now then after = second end
  set[#set + 1], set[#set + 2] = 'done', string.format('%.0f', math.max(tonumber(done or 0), tonumber(instant)))
  plan(queue, {jobs = jobs, job = job, name = name}, {next = after, jitter = jitter, put = true, now = now}, set)
elseif #set > 0 then
  redis.call('hset', job, unpack(set))
end
if kept and keep > 0 then
  redis.call('lpush', runs, result)
  redis.call('ltrim', runs, 0, keep - 1)
elseif kept then
  redis.call('del', runs)
end
if how == 'wait' then return {'ended'} end
if mine and waits and waits ~= id then -- the tick that waits for this comes now
  local sleeper = string.sub(redis.call('hget', bodies, waits) or '', 1, 16) .. waits
  if redis.call('zscore', due, sleeper) then
    wake({meta = queue.meta, waiters = queue.waiters, channel = queue.channel}, now, now)
    redis.call('zadd', due, string.format('%.0f', now), sleeper)
  end
end
if waits == id then redis.call('hdel', job, 'waits') end
if mine then forget(job, slot) end
if not schedule then redis.call('zadd', jobs, 'xx', string.format('%.0f', now), name) end -- unless it was removed a heartbeat writes it again
finish(queue, member)
return {'ended'}
