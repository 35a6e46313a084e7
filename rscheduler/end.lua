-- end.lua: end an attempt of a run, or a tick of a fixed delay that did not run. It acknowledges the message, unless another
-- attempt follows.
--
-- KEYS[1]  running: hash, see begin.lua
-- KEYS[2]  spans: hash, job -> when the last run began, and when it ended, µs
-- KEYS[3]  left: hash, see begin.lua
-- KEYS[4]  marks: hash, see beat.lua
-- KEYS[5]  last: hash, job -> the last result
-- KEYS[6]  runs: list of the results of the job, newest first
-- KEYS[7]  jobs: hash, job -> text of its schedule
-- KEYS[8]  meta of the queue, see ack.lua
-- KEYS[9]  due of the queue, see ack.lua
-- KEYS[10]  flight of the queue, see ack.lua
-- KEYS[11]  dead of the queue, see ack.lua
-- KEYS[12]  bodies of the queue, see ack.lua
-- KEYS[13]  claims of the queue, see ack.lua
-- KEYS[14]  errors of the queue, see ack.lua
-- KEYS[15]  done of the queue, see ack.lua
-- KEYS[16]  receipts of the queue, see ack.lua
-- ARGV[1]  the job
-- ARGV[2]  its field in running
-- ARGV[3]  id of the tick
-- ARGV[4]  its claim
-- ARGV[5]  end; wait for another attempt; drop if it did not run
-- ARGV[6]  the result
-- ARGV[7]  how many results are kept
-- ARGV[8]  delay until the next tick, µs; 0 but for a fixed delay
-- ARGV[9]  for how long ticks are to run late that were missed as the process was dead, µs; 0 if they are not to
-- ARGV[10]  the instant of the tick, µs
-- ARGV[11]  text of the schedule
-- ARGV[12]  the tick's member in the queue
-- ARGV[13]  for how long the queue remembers the id, ms
--
-- Returns  an array: the time in µs; the id of a tick that waits for this or nothing; the mark of the job if it says what is
--          next, or nothing
local running, spans, left, marks, last, runs, jobs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local job, slot, id, claim, how, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local keep, delay, window, instant, text = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local member, remember = ARGV[12], ARGV[13]
local queue = {
  meta = KEYS[8], due = KEYS[9], flight = KEYS[10], dead = KEYS[11], bodies = KEYS[12], claims = KEYS[13], errors = KEYS[14],
  done = KEYS[15], receipts = KEYS[16],
}

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local record = redis.call('hget', running, slot) or ''
local state, held, began, missed, holder = string.match(record, '^(%a) (%d+) %d+ (%d+) (%d+) ([^\n]*)\n')
local mine = holder == id and held == claim and state ~= 'w' -- once: the script may run again
local mark = redis.call('hget', marks, job) or ''
redis.call('hdel', running, '') -- a full Redis refuses only the first write of a script, and never one that frees memory
if mine then
  redis.call('hset', running, slot, record) -- changes nothing, and fails if HSET would after the result is kept
end
local remove = how ~= 'wait' and acknowledge(queue, {member, claim, remember})
if mine and how ~= 'drop' and redis.call('hexists', jobs, job) == 1 then -- else it was removed meanwhile
  if keep > 0 then
    redis.call('ltrim', runs, 0, keep - 1)
    redis.call('lpush', runs, result)
    redis.call('ltrim', runs, 0, keep - 1)
  else
    redis.call('del', runs)
  end
  redis.call('hset', last, job, result)
  redis.call('hset', spans, job, began .. ' ' .. stamp)
end
if how == 'wait' then
  if mine then
    redis.call('hset', running, slot, 'w' .. string.sub(record, 2))
  end
  return {stamp, '', ''}
end
if mine then
  redis.call('hdel', running, slot)
end
remove()
local offered, next, to, of = string.match(mark, '^(%d+),?(%d*)%-?(%d*) (.*)$')
next, to = tonumber(next), tonumber(to)
if of == text and (mine or how == 'drop') then -- a run that was taken over moves nothing
  if delay > 0 and tonumber(offered) == instant then
    offered = string.format('%.0f', now + delay)
  elseif next == instant then
    next = instant + 1
  elseif mine and not next and window > 0 and missed ~= '0' then
    -- Those that were due before it began have run, or were left out.
    next, to = math.max(instant + 1, tonumber(began), now - window), tonumber(missed)
  end
  if next and next > to then
    next = nil
  end
  mark = offered .. (next and string.format(',%.0f-%.0f ', next, to) or ' ') .. text
  redis.call('hset', marks, job, mark)
end
return {stamp, string.match(redis.call('hget', left, job) or '', ' (.*)$') or '', (next or delay > 0) and mark or ''}
