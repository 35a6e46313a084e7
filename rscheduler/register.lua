-- register.lua: write the definitions of jobs that a process runs, and see to it that the next tick of each is in the queue.
--
-- KEYS[1]  meta: hash, see beat.lua
-- KEYS[2]  alive: sorted set, see beat.lua
-- KEYS[3]  jobs: sorted set, see beat.lua
-- KEYS[4..7]  of the queue: meta, due, bodies, waiters
-- KEYS[8]  claims of the queue
-- KEYS[9]  errors of the queue
-- KEYS[10..n]  the hash of each job, see states.md
-- ARGV[1]  the process
-- ARGV[2]  prefix of the channels of the queue's clients
-- ARGV[3..n]  for each job: its name, the text of its schedule, 1 to set that or 0 to write it only if there is none, its first tick, µs,
--          or nothing, how much later its next tick is due, µs, 1 if its runs may overlap or 0, and, to replace another schedule, the next
--          tick of that as the caller knows it, or -
--
-- Returns  an array: for each job the text of its schedule; new, if it was written, old, if it was there, replaced, or again, if its
--          schedule is to be replaced by a caller who knows the next tick so far; the text that was replaced; the next tick so far, or
--          nothing; the newest tick that was decided, or nothing
local meta, alive, jobs, bodies, process, items = KEYS[1], KEYS[2], KEYS[3], KEYS[6], ARGV[1], ARGV
local queue = {meta = KEYS[4], due = KEYS[5], bodies = bodies, waiters = KEYS[7], claims = KEYS[8], errors = KEYS[9], channel = ARGV[2]}

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp, reply, place = string.format('%.0f', now), {}, {jobs = jobs}
redis.call('hdel', meta, '') -- a full Redis refuses only the first write of a script, and not this one
for n = 1, (#items - 2) / 7 do
  local job, i = KEYS[n + 9], 7 * n - 4
  local name, text, force, tick, known = items[i], items[i + 1], items[i + 2], items[i + 3], items[i + 6]
  local have, before, done, run = unpack(redis.call('hmget', job, 'schedule', 'next', 'done', 'run'))
  local how = not have and 'new' or (force == '0' or have == text) and 'old' or known == before and 'replaced' or 'again'
  local fields, write = {'on:' .. process, stamp}, how == 'new' or how == 'replaced'
  if write then
    redis.call('hset', meta, 'changed', stamp)
    if before and run ~= name .. '@' .. before then withdraw(queue, name .. '@' .. before) end -- not one that has begun
    fields = {'schedule', text, 'on:' .. process, stamp}
  elseif before ~= '?' or have ~= text then
    tick = before
  end
  for _, field in ipairs(redis.call('hkeys', job)) do -- processes that died
    local other = string.match(field, '^on:(.*)$')
    if other and other ~= process and not redis.call('zscore', alive, other) then redis.call('hdel', job, field) end
  end
  -- While a run goes on, its end puts the next tick into the queue.
  local busy = run and redis.call('hexists', bodies, run) == 1
  local absent = tonumber(tick) and not busy and redis.call('hexists', bodies, name .. '@' .. tick) == 0
  if absent and tonumber(tick) <= now then -- nobody had the job then
    fields[#fields + 1], fields[#fields + 2] = 'up', stamp
  end
  place.job, place.name = job, name
  if how ~= 'again' then plan(queue, place, {next = tick, jitter = items[i + 4], put = absent, now = now}, fields) end
  local r = #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = write and text or have, how, how == 'replaced' and have or ''
  reply[r + 4], reply[r + 5] = before or '', done or ''
end
return reply
