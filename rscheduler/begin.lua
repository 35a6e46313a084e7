-- begin.lua: begin the run of a tick that was claimed, unless it has to wait or does not run. See states.md.
--
-- KEYS[1]  the job: hash
-- KEYS[2]  meta: hash, see beat.lua
-- KEYS[3]  jobs: sorted set, see beat.lua
-- KEYS[4]  meta of the queue
-- KEYS[5]  due of the queue
-- KEYS[6]  bodies of the queue
-- KEYS[7]  waiters of the queue
-- KEYS[8]  claims of the queue: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- ARGV[1]  prefix of the channels of the queue's clients
-- ARGV[2]  the job
-- ARGV[3]  id of the tick
-- ARGV[4]  what follows the names of the fields of its run: @ and the rest of the id
-- ARGV[5]  its claim
-- ARGV[6]  the client
-- ARGV[7]  its instant, µs; nothing for a manual run
-- ARGV[8]  when it was due first, µs
-- ARGV[9]  when this attempt was due, µs
-- ARGV[10]  the attempt
-- ARGV[11]  the attempt after which a run whose process died is not repeated
-- ARGV[12]  overlap: skip, queue, queue all or allow
-- ARGV[13]  how old a missed tick may be to run, µs
-- ARGV[14]  1 if another tick runs in its place should it be late, else 0
-- ARGV[15]  how long after its instant it is late, µs
-- ARGV[16]  the tick after it, µs, or nothing; only where runs may overlap
-- ARGV[17]  how much later that is due, µs
-- ARGV[18]  for how long the scheduler counts as running from now on if it has not, µs
-- ARGV[19]  text of the schedule as the caller knows it
--
-- Returns  an array: run, the time, µs, its token, the field free, and when it began; died, if a process of it died and it
--          is not to be repeated, the time, the last attempt, when that began, its client, and the field free; late, the time,
--          and the oldest tick that may run; paused, the time, and the end of the pause or 0; other, the time, and the schedule;
--          layout and a version, negative, of keys that this library does not read; or, with the time alone, lost, if this is not
--          the tick's latest claim; gone, if the tick is not the job's next one; left, if another run goes on; wait, for it
local job, meta, jobs, bodies, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[6], KEYS[8]
local name, id, slot, claim, client, instant, due = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local due_now, attempt, limit, overlap, window = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], tonumber(ARGV[13])
local replaced, patience, after, jitter, length, text = ARGV[14] == '1', tonumber(ARGV[15]), ARGV[16], ARGV[17], tonumber(ARGV[18]), ARGV[19]
local queue = {meta = KEYS[4], due = KEYS[5], bodies = bodies, waiters = KEYS[7], channel = ARGV[1]}

-- A call that arrives late writes nothing: its process may be dead.
if not holds(claims, id, claim) then return {'lost', '0'} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp, manual = string.format('%.0f', now), instant == ''
local head = redis.call('hmget', meta, 'layout', 'up', 'until', 'token')
local other, up = foreign(head), tonumber(head[2] or 0)
if other then return {'layout', -other} end
if tonumber(head[3] or 0) < now then -- nobody ran the scheduler
  up = now
  redis.call('hdel', meta, '') -- a full Redis refuses only the first write of a script, and not this one
  redis.call('hset', meta, 'layout', 2, 'up', stamp, 'until', string.format('%.0f', now + length))
end
local hash = fields(job)
local state, token, free = hash['state' .. slot], hash['token' .. slot], hash.free or '0'
local tried, started, where, fresh = hash['attempt' .. slot], hash['started' .. slot], hash['client' .. slot], not state
local function answer(died) return died and {'died', stamp, tried, started, where, free} or {'run', stamp, token, free, started} end
if hash['claim' .. slot] == claim then return answer(state == 'died') end -- the call is repeated

if not hash.schedule or state == 'removed' or fresh and not manual and instant ~= hash.next then
  forget(job, slot)
  if not hash.schedule then redis.call('zadd', jobs, 'xx', stamp, name) end -- unless it was removed a heartbeat writes it again
  return {'gone', stamp}
end
if hash.schedule ~= text then return {'other', stamp, hash.schedule} end
if not manual then
  local over = hash.paused and 0
  for from, till in string.gmatch(hash.pauses or '', '(%d+)%-(%d+)') do
    from, till = tonumber(from), tonumber(till)
    if not over and (from <= due and due < till or from <= due_now and due_now < till) then over = till end
  end
  if over then return {'paused', stamp, string.format('%.0f', over)} end
end
if fresh and not manual then
  up = math.max(up, tonumber(hash.up or 0))
  local least = due < up and up - window or attempt > 1 and now - window or 0
  local late = due < up or attempt > 1 or now - tonumber(instant) > patience
  if late and replaced or tonumber(instant) < least then return {'late', stamp, string.format('%.0f', least)} end
end
if fresh and overlap ~= 'allow' then
  if overlap == 'queue' and hash.waits ~= id and due < tonumber(hash.waited or 0) then return {'left', stamp} end
  for field in pairs(hash) do
    local other = string.match(field, '^state(@.*)$')
    if other and redis.call('hexists', bodies, name .. other) == 1 then
      if overlap == 'skip' then return {'left', stamp} end
      redis.call('hdel', job, '')
      if not manual then redis.call('zadd', jobs, '+inf', name) end -- it is not overdue then
      redis.call('hset', job, 'waits', id, 'waited', string.format('%.0f', due))
      return {'wait', stamp}
    elseif other then
      forget(job, other) -- its message was purged
    end
  end
end

local died = not fresh and attempt > limit and state ~= 'waiting'
token = string.format('%.0f', math.max(now, tonumber(head[4] or 0) + 1))
if fresh and due > tonumber(hash.ended or 0) or not fresh and state ~= 'waiting' then free = stamp end -- it was not held up by a run
if fresh or not died then tried, started, where = attempt, stamp, client end
redis.call('hdel', job, '')
redis.call('hset', meta, 'token', token)
local set = {
  'state' .. slot, died and 'died' or 'running', 'claim' .. slot, claim, 'attempt' .. slot, tried,
  'started' .. slot, started, 'client' .. slot, where, 'free', free, 'token' .. slot, token,
}
if fresh and not manual and overlap == 'allow' then
  set[#set + 1], set[#set + 2] = 'done', instant
  plan(queue, {jobs = jobs, job = job, name = name}, {next = after, jitter = jitter, put = true, now = now}, set)
else
  if fresh and not manual then redis.call('zadd', jobs, '+inf', name) end
  redis.call('hset', job, unpack(set))
end
if hash.waits == id then redis.call('hdel', job, 'waits') end
return answer(died)
