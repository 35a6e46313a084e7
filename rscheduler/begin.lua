-- begin.lua: begin a run of a tick that was claimed, if that is to be.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  paused: hash, job -> why
-- KEYS[3]  marks: hash, see beat.lua
-- KEYS[4]  running: hash, job, or id of the tick if runs of the job may overlap -> r while it runs or w while it waits for another
--          attempt, claim, when it began, µs, until when ticks were missed as its process was dead, µs, id; on a line of its own what
--          is shown of it
-- KEYS[5]  spans: hash, job -> when the last run began, and when it ended, µs
-- KEYS[6]  left: hash, job -> a tick that came while another ran, and is to run later: instant, kind, text of the
--          schedule
-- KEYS[7]  alive: sorted set, processes by the time until which they count as running, µs
-- KEYS[8]  meta: hash, see beat.lua
-- KEYS[9]  bodies: hash, the ids of the ticks in the queue
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
-- ARGV[14]  1 if a newer tick of the job is due as well
-- ARGV[15]  1 if it may run although it was missed
-- ARGV[16]  1 if it has to be the one of the mark
-- ARGV[17]  1 if it waits in the queue until others have ended
-- ARGV[18]  what is shown of it
--
-- Returns  an array: run; or gone, for a tick of what is not scheduled any more; missed; left, as another runs; died, if it ran and is
--          not to be repeated: it has to be ended; then the time in µs; after gone the text of another schedule, if there is one
local jobs, paused, marks, running, spans, left, alive, meta, bodies =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local process, length, job, slot, id, claim, kind, expected = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local instant, due, attempt, limit, overlap = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13]
local newer, late, chained, waits, shown = ARGV[14] == '1', ARGV[15] == '1', ARGV[16] == '1', ARGV[17] == '1', ARGV[18]

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp, first = string.format('%.0f', now), attempt == 1
local up = touch(alive, meta, process, length, now)
local text = redis.call('hget', jobs, job)
local record = redis.call('hget', running, slot) or ''
local state, held, began, missed, holder = string.match(record, '^(%a) (%d+) (%d+) (%d+) ([^\n]*)\n')
local kept = string.match(redis.call('hget', left, job) or '', '^%d+')
local outdated = kind ~= 'r' and kept and tonumber(kept) <= tonumber(instant) -- what is kept is this one, or older
local stopped = kind ~= 'm' and redis.call('hexists', paused, job) == 1
local replaced = kind ~= 'm' and text and text ~= expected
if not text or stopped or replaced or chained and string.match(redis.call('hget', marks, job) or '', '^%d+') ~= instant then
  if outdated then
    redis.call('hdel', left, job)
  end
  if holder == id then
    redis.call('hdel', running, slot)
  end
  return {'gone', stamp, replaced and not stopped and text or nil}
end
if kind == 'r' and first and not late and due < up then
  return {'missed', stamp}
end
if holder and holder ~= id and redis.call('hexists', bodies, holder) == 1 then
  if overlap == 'queue' and not waits and tonumber(kept or 0) < tonumber(instant) then
    redis.call('hset', left, job, instant .. ' ' .. kind .. ' ' .. expected)
  end
  return {'left', stamp}
end
if holder ~= id then
  state, held, began, missed = nil, nil, stamp, '0'
end
local from, to = string.match(redis.call('hget', spans, job) or '', '^(%d+) (%d+)$')
if overlap ~= 'allow' and first and not waits and from and tonumber(from) <= due and due <= tonumber(to) then
  if overlap == 'skip' or newer then
    return {'left', stamp}
  end
end
if state == 'r' and held ~= claim then
  missed = stamp
end
if outdated then
  redis.call('hdel', left, job)
end
redis.call('hset', running, slot, 'r ' .. claim .. ' ' .. began .. ' ' .. missed .. ' ' .. id .. '\n' .. shown)
return {attempt > limit and state ~= 'w' and 'died' or 'run', stamp}
