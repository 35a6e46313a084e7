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
--          or nothing, how much later its next tick is due, µs, and the next tick so far as the caller knows it, or -
--
-- Returns  an array: for each job the text of its schedule; new, if it was written, old, if it was there, replaced, or again, if the
--          caller has to know the next tick so far; the text that was replaced; the next tick so far, or
--          nothing; the newest tick that was decided, or nothing. At last meta's changed before this call, and after it
local meta, alive, jobs, bodies, process, items = KEYS[1], KEYS[2], KEYS[3], KEYS[6], ARGV[1], ARGV
local queue = {meta = KEYS[4], due = KEYS[5], bodies = bodies, waiters = KEYS[7], claims = KEYS[8], errors = KEYS[9], channel = ARGV[2]}

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp, reply, place = string.format('%.0f', now), {}, {jobs = jobs}
local changed_before = redis.call('hget', meta, 'changed') or '0'
local changed, lives = changed_before, {}
for _, other in ipairs(redis.call('zrangebyscore', alive, '(' .. stamp, '+inf')) do lives[other] = true end
redis.call('hdel', meta, '') -- a full Redis refuses only the first write of a script, and not this one
for n = 1, (#items - 2) / 6 do
  local job, i = KEYS[n + 9], 6 * n - 3
  local name, text, force, tick, known = items[i], items[i + 1], items[i + 2], items[i + 3], items[i + 5]
  local hash, had = fields(job), false
  for field in pairs(hash) do
    local other = string.match(field, '^on:(.*)$')
    had = had or other and other ~= process and lives[other]
    if other and other ~= process and not lives[other] then redis.call('hdel', job, field) end -- it has died
  end
  local have, before, done = hash.schedule, hash.next, hash.done
  local how = known == before and 'replaced' or 'again'
  if not have then
    how = 'new'
  elseif have == text or force == '0' then
    how = have == text and before == '?' and known ~= '?' and 'again' or 'old'
  end
  local set, write = {'on:' .. process, stamp}, how == 'new' or how == 'replaced'
  had = had or write and hash['on:' .. process] -- it replaces the schedule of a job that it has, and may else have been away
  -- The end of a run puts the tick that comes after it into the queue.
  local busy = before and hash['state@' .. before] and redis.call('hexists', bodies, name .. '@' .. before) == 1
  if write then
    if changed == changed_before then changed = change(meta, now) end
    if before and not busy then withdraw(queue, name .. '@' .. before) end
    set = {'schedule', text, 'on:' .. process, stamp}
  end
  if busy or not write and (before ~= '?' or have ~= text) then tick = before end
  local absent = tonumber(tick) and redis.call('hexists', bodies, name .. '@' .. tick) == 0
  if absent and not had and tonumber(tick) <= now then -- nobody had the job then
    set[#set + 1], set[#set + 2] = 'up', stamp
  end
  place.job, place.name = job, name
  local indexed = busy or tick == '?' or hash.waits == name .. '@' .. (tick or '')
  if how ~= 'again' then plan(queue, place, {next = tick, jitter = items[i + 4], put = absent, now = now, known = indexed}, set) end
  local r = #reply
  reply[r + 1], reply[r + 2], reply[r + 3] = write and text or have, how, how == 'replaced' and have or ''
  reply[r + 4], reply[r + 5] = before or '', done or ''
end
reply[#reply + 1], reply[#reply + 2] = changed_before, changed
return reply
