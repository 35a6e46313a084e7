-- job.lua: look at one job, pause, resume or remove it, leave it, or drop a tick of it that nobody runs.
--
-- KEYS[1]  the job: hash, see states.md
-- KEYS[2]  meta: hash, see beat.lua
-- KEYS[3]  alive: sorted set, see beat.lua
-- KEYS[4]  jobs: sorted set, see beat.lua
-- KEYS[5]  runs: list of the results of the job, newest first
-- KEYS[6]  removed: string, the call that has removed the job; kept for an hour
-- KEYS[7]  claims of the queue
-- KEYS[8]  errors of the queue
-- KEYS[9]  flight of the queue
-- KEYS[10]  due of the queue
-- KEYS[11]  bodies of the queue
-- KEYS[12]  left: sorted set, see beat.lua
-- ARGV[1]  the job
-- ARGV[2]  look, runs, pause, resume, remove, leave or drop
-- ARGV[3]  for runs, how many results are wanted; for a pause, why; for a removal, the id of this call; the process that leaves; the claim
--          of the tick to drop
-- ARGV[4]  to drop, the tick's member in the queue
--
-- Returns  an array: the time, µs; 1 if there is, or was, such a job, else 0; 1 if a process has it that runs, or to look, that has stopped just now, else 0; the results
--          that are wanted. Or a single number, see beat.lua
local job, meta, alive, jobs, runs, removed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local claims = KEYS[7]
local queue = {claims = claims, errors = KEYS[8], flight = KEYS[9], due = KEYS[10], bodies = KEYS[11]}
local left = KEYS[12]
local name, verb, detail, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local other = foreign(redis.call('hmget', meta, 'layout', 'up'))
if other then return {-other} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local hash, stamp = fields(job), string.format('%.0f', now)
local found, had, pauses = hash.schedule and 1 or 0, 0, hash.pauses or ''
for field in pairs(hash) do
  local process = string.match(field, '^on:(.*)$')
  local till = process and redis.call('zscore', alive, process) or process and verb == 'look' and redis.call('zscore', left, process)
  if till and tonumber(till) > now then had = 1 end
end
local reply = {stamp, found, had}
if verb ~= 'look' and verb ~= 'runs' then
  redis.call('hdel', job, '') -- fails if HDEL would below; a full Redis refuses only a script's first write, and not this one
end
local mine = member ~= '' and holds(claims, string.sub(member, 17), detail)
if found == 0 and mine then
  forget(job, string.sub(member, 17 + #name)) -- a run that went on when the job was removed, and whose process died
end
if verb == 'runs' then
  for i, result in ipairs(redis.call('lrange', runs, 0, detail - 1)) do reply[3 + i] = result end
elseif found == 1 and verb == 'pause' then
  if not hash.paused then pauses = string.sub(pauses, -34 * 99) .. string.format('%016.0f-', now) end
  redis.call('hset', job, 'paused', detail, 'pauses', pauses)
elseif found == 1 and verb == 'resume' and hash.paused then
  redis.call('hset', job, 'pauses', pauses .. string.format('%016.0f ', now))
  redis.call('hdel', job, 'paused')
elseif verb == 'remove' then
  if found == 1 then
    redis.call('set', removed, detail, 'px', 3600000)
    change(meta, now)
  elseif redis.call('get', removed) == detail then -- this call ran before, and the reply was lost
    reply[2] = 1
  end
  redis.call('zrem', jobs, name)
  redis.call('del', runs)
  if hash.next and not hash['state@' .. hash.next] then withdraw(queue, name .. '@' .. hash.next) end
  if hash.waits then withdraw(queue, hash.waits) end
  for field in pairs(hash) do -- no other run begins beside one that goes on
    local what, slot = string.match(field, '^(%a+)(@.*)$')
    if what == 'state' then
      if withdraw(queue, name .. slot) then forget(job, slot) else redis.call('hset', job, field, 'removed') end
    elseif not slot then
      redis.call('hdel', job, field)
    end
  end
elseif verb == 'leave' then
  redis.call('hdel', job, 'on:' .. detail)
elseif verb == 'drop' and had == 0 then -- the next process that has the job puts the tick back
  redis.call('zadd', jobs, 'xx', '+inf', name)
  if mine then finish(queue, member) end
end
return reply
