-- list.lua: list the names of about a hundred jobs, and show others.
--
-- KEYS[1]  meta: hash, see beat.lua
-- KEYS[2]  alive: sorted set, see beat.lua
-- KEYS[3]  jobs: sorted set, see beat.lua
-- KEYS[4]  claims of the queue: hash, id of a tick -> its claim
-- KEYS[5..n]  the hash of each job that is to be shown
-- ARGV[1]  where to go on with the names, 0 at first; nothing after the last one
--
-- Returns  an array: the time, µs; where to go on; how many names there are, and the names; how many processes run, and these; then of each
--          job how many values its hash has, its fields and their values, after that of a run h if that is still the latest claim of its
--          tick, or nothing. Or a single number, see beat.lua
local meta, alive, jobs, claims, cursor = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

local other = foreign(meta)
if other then return {-other} end
local time = redis.call('time')
local stamp = string.format('%.0f', time[1] * 1000000 + time[2])
local names, after = {}, ''
if cursor ~= '' then
  local found = redis.call('zscan', jobs, cursor, 'count', 100)
  after = found[1] ~= '0' and found[1] or ''
  for i = 1, #found[2], 2 do names[#names + 1] = found[2][i] end
end
local processes = redis.call('zrangebyscore', alive, '(' .. stamp, '+inf')
local reply = {stamp, after, #names, names, #processes, processes}
for n = 5, #KEYS do
  local all = redis.call('hgetall', KEYS[n])
  local have = {}
  for i = 1, #all, 2 do have[all[i]] = all[i + 1] end
  for i = 1, #all, 2 do
    local slot = string.match(all[i], '^run(.*)$')
    if slot and (slot == '' or string.sub(slot, 1, 1) == '@') then
      local held = string.sub(redis.call('hget', claims, all[i + 1]) or '', 1, 17)
      if held ~= 'h' .. (have['claim' .. slot] or '') then all[i + 1] = '' end
    end
  end
  reply[#reply + 1], reply[#reply + 2] = #all, all
end
return reply
