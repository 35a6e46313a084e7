-- mark.lua: note which ticks were offered.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  marks: hash, job -> the last instant that was offered, the first one that was ahead then, µs, and the text of the schedule
-- ARGV[1..n]  for each job: its name, the text of its schedule, the instant, the first one ahead, 1 to keep a mark that is there
--
-- Returns  1
local jobs, marks, items = KEYS[1], KEYS[2], ARGV

for i = 1, #items, 5 do
  local job, text, instant, ahead, keep = items[i], items[i + 1], items[i + 2], items[i + 3], items[i + 4]
  local old, _, of = string.match(redis.call('hget', marks, job) or '', '^(%d+) (%d+) (.*)$')
  local stays = of == text and (keep == '1' or tonumber(old) >= tonumber(instant))
  if redis.call('hget', jobs, job) == text and not stays then
    redis.call('hset', marks, job, instant .. ' ' .. ahead .. ' ' .. text)
  end
end
return 1
