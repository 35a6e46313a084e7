-- list.lua: list the names of all jobs, and show some.
--
-- KEYS[1]  meta: hash, see beat.lua
-- KEYS[2]  alive: sorted set, see beat.lua
-- KEYS[3]  jobs: sorted set, see beat.lua
-- KEYS[4]  claims of the queue: hash, id of a tick -> its claim
-- KEYS[5..n]  the hash of each job that is to be shown
-- ARGV[1]  1 if the names are wanted, else 0
-- ARGV[2..n]  the name of each job that is to be shown
--
-- Returns  an array: the time, µs; how many names there are, and the names; how many processes run, and these; then of each job how many
--          values its hash has, its fields and their values, with died as the state of a run that goes on under no claim, and due, the
--          time in the index. Or a single number, see beat.lua
local meta, alive, jobs, claims, wanted, shown = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV

local other = foreign(redis.call('hmget', meta, 'layout', 'up'))
if other then return {-other} end
local time = redis.call('time')
local stamp = string.format('%.0f', time[1] * 1000000 + time[2])
local names = wanted == '1' and redis.call('zrange', jobs, 0, -1) or {}
local processes = redis.call('zrangebyscore', alive, '(' .. stamp, '+inf')
local reply = {stamp, #names, names, #processes, processes}
for n = 5, #KEYS do
  local all = {}
  local hash = fields(KEYS[n])
  for field, value in pairs(hash) do
    local slot = string.match(field, '^state(@.*)$')
    if slot and value == 'running' then
      local held = string.sub(redis.call('hget', claims, shown[n - 3] .. slot) or '', 1, 17)
      if held ~= 'h' .. (hash['claim' .. slot] or '') then value = 'died' end
    end
    all[#all + 1], all[#all + 2] = field, value
  end
  if #all > 0 then
    all[#all + 1], all[#all + 2] = 'due', redis.call('zscore', jobs, shown[n - 3]) or ''
  end
  reply[#reply + 1], reply[#reply + 2] = #all, all
end
return reply
