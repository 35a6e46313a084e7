-- begin.lua: begin the run of a tick that was claimed, unless it has to wait or is left out.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  paused: hash, job -> why
-- KEYS[3]  pauses: hash, see job.lua
-- KEYS[4]  marks: hash, see beat.lua
-- KEYS[5]  running: hash, job, or id of the tick if runs of the job may overlap -> r while it runs, w while it waits for another
--          attempt, or d if it has died for good; claim, token, when it began, µs, until when ticks were missed as its process was
--          dead, µs, id; on a line of its own what is shown of it
-- KEYS[6]  spans: hash, job -> when the last run began, and when it ended, µs
-- KEYS[7]  left: hash, job -> when the newest tick that has waited for the end of another run was due first, µs, and its id as long as
--          it waits
-- KEYS[8]  late: hash, job -> the newest tick that was due when another one was left out as too late; others before it are too, µs
-- KEYS[9]  alive: sorted set, processes by the time until which they count as running, µs
-- KEYS[10]  meta: hash, see beat.lua
-- KEYS[11]  bodies: hash, the ids of the ticks in the queue
-- KEYS[12]  claims of the queue: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- ARGV[1]  the process
-- ARGV[2]  for how long it counts as running, µs
-- ARGV[3]  the job
-- ARGV[4]  its field in running
-- ARGV[5]  id of the tick
-- ARGV[6]  its claim
-- ARGV[7]  its kind: r regular, c catches up, m manual
-- ARGV[8]  text of its schedule
-- ARGV[9]  its instant, µs
-- ARGV[10]  when it was due first, µs
-- ARGV[11]  the attempt
-- ARGV[12]  the attempt after which a run whose process died is not repeated
-- ARGV[13]  overlap: skip, queue or allow
-- ARGV[14]  the newest tick of the job that was due when this one was claimed, µs; 0 if it is this one
-- ARGV[15]  how old it may be when somebody runs the scheduler again, to run although it was missed, µs; 0 if a newer one is due and
--           there is no backfill
-- ARGV[16]  1 if it has to be the one of the mark
-- ARGV[17]  what is shown of it
-- ARGV[18]  id of the tick before it, which has to be gone before it runs late; or nothing
-- ARGV[19]  1 if the caller asks again after gone when the schedule was replaced: then nothing is cleaned up yet; else 0
-- ARGV[20]  when this attempt was due, µs
-- ARGV[21]  with a newer one, id of the newest tick of the job that was more than 5 s late; or nothing
--
-- Returns  an array: run; or lost, if this is not the tick's latest claim any more; gone, for a tick of what is not scheduled any
--          more; missed; left, if it is left out, as another one ran or will run instead; wait, until another one has ended; died,
--          if a process of it died and it is not to be repeated: it has to be ended; then the time in µs; after run its token; after
--          gone the text of another schedule, if there is one; after died what is shown of the attempt that died
local jobs, paused, pauses, marks, running, spans, left = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local late, alive, meta, bodies, claims = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local process, length, job, slot, id, claim, kind, expected = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local instant, due, attempt, limit, overlap = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13]
local newer, window, chained, shown, before, more = ARGV[14], tonumber(ARGV[15]), ARGV[16] == '1', ARGV[17], ARGV[18], ARGV[19] == '1'
local due_now, older = tonumber(ARGV[20]), ARGV[21]

-- A call that arrives late writes nothing: its process may be dead.
if string.sub(redis.call('hget', claims, id) or '', 1, 17) ~= 'h' .. claim then return {'lost', '0'} end

-- The process counts as running from now on. What is kept of the job:
local now, up = touch(alive, meta, process, length)
local stamp, text = string.format('%.0f', now), redis.call('hget', jobs, job)
local record = redis.call('hget', running, slot) or ''
local state, held, token, began, missed, holder, attempted = string.match(record, '^(%a) (%d+) (%d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
local newest, waiting = string.match(redis.call('hget', left, job) or '0 ', '^(%d+) (.*)$')
local last, next, to, of = string.match(redis.call('hget', marks, job) or '', '^(%d+),?(%d*)%-?(%d*) (.*)$')
local fresh = holder ~= id -- no attempt of the tick is in running

-- 1. A call that is repeated has the same answer: the tick runs, or has died.
if held == claim and not fresh then
  return {state == 'd' and 'died' or 'run', stamp, state == 'd' and attempted or token}
end

-- 2. A tick of what is not scheduled any more is gone. Nothing is kept of it, unless the caller asks again.
local stopped, over = false, nil -- over is when the pause ended, if it has
if kind ~= 'm' then stopped, over = was_paused(paused, pauses, job, {due, due_now}) end
local replaced = kind ~= 'm' and text and text ~= expected
local earlier = next and next ~= '' and tonumber(next) < tonumber(instant) -- another tick runs late before it
if kind == 'r' and (next == instant or earlier and tonumber(instant) <= tonumber(to)) then
  kind = 'c'
end
if not text or stopped or replaced or chained and last ~= instant then
  redis.call('hdel', running, '') -- does nothing, and fails if HDEL would below
  local again = more and replaced and not stopped
  if kind == 'c' and next == instant and of == expected then -- and so are those that were to run late after it, or up to the end of the pause
    local rest = over and over <= tonumber(to) and string.format(',%.0f-%s ', over, to) or ' '
    redis.call('hset', marks, job, last .. rest .. of)
  end
  if waiting == id and not again then redis.call('hset', left, job, newest .. ' ') end
  if not fresh and not again then redis.call('hdel', running, slot) end
  return {'gone', stamp, again and text or nil}
end

-- 3. One that was due while nobody ran the scheduler is missed, or runs late if it is not too old.
if kind == 'r' and fresh and due < up and waiting ~= id then
  if tonumber(instant) < up - window then
    return {'missed', stamp}
  end
  kind = 'c'
end

-- 4. One that may not overlap another is left out, or waits. One that runs late waits whatever the policy is.
if overlap ~= 'allow' and fresh and kind ~= 'c' then
  local from, till = string.match(redis.call('hget', spans, job) or '', '^(%d+) (%d+)$')
  local overlapped = from and tonumber(from) < due and due <= tonumber(till)
  local passed = tonumber(redis.call('hget', late, job) or 0)
  local aged = now - due > 5000000 or older ~= holder and redis.call('hexists', bodies, older) == 1 -- which nobody has looked at yet
  local outdated = newer ~= '0' and waiting ~= id and (overlapped or aged or tonumber(instant) < passed)
  -- It is missed, and runs late, if its process died before it began, or if it meets a run that began after it was due. The window
  -- counts from now, as somebody ran the scheduler all the time. A fixed delay has no other tick.
  local was_missed = attempt > 1 and waiting ~= id or overlap == 'skip' and holder and tonumber(began) >= due
  if was_missed and kind == 'r' and not overlapped and not chained and tonumber(instant) >= now - window then
    kind = 'c'
  elseif overlapped and overlap == 'skip' or outdated or due < tonumber(newest) then
    if outdated and aged and tonumber(newer) > passed then redis.call('hset', late, job, newer) end
    return {'left', stamp}
  end
end
local behind = fresh and kind == 'c' and overlap ~= 'allow' and (earlier or redis.call('hexists', bodies, before) == 1)
if behind or fresh and holder and redis.call('hexists', bodies, holder) == 1 then
  if kind == 'c' then return {'wait', stamp} end
  if overlap == 'skip' then return {'left', stamp} end
  redis.call('hset', left, job, string.format('%.0f', due) .. ' ' .. id)
  return {'wait', stamp}
end

-- 5. It runs, or has died too often.
local died = attempt > limit and (fresh or state ~= 'w')
shown = died and not fresh and attempted or shown
if fresh then
  began, missed = stamp, '0'
elseif state ~= 'w' then
  missed = stamp
end
if waiting == id then redis.call('hset', left, job, newest .. ' ') end
token = draw(meta, now)
redis.call('hset', running, slot, table.concat({died and 'd' or 'r', claim, token, began, missed, id}, ' ') .. '\n' .. shown)
return {died and 'died' or 'run', stamp, died and shown or token}
