-- mark.lua: note which ticks were offered.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  marks: hash, job -> the last instant that was offered, µs, and the text of the schedule
-- ARGV[1..n]  for each job: its name, the text of its schedule, the instant, 1 to keep a mark that is there
--
-- Returns  1
local jobs, marks, items = KEYS[1], KEYS[2], ARGV

for i = 1, #items, 4 do
  local job, text, instant, keep = items[i], items[i + 1], items[i + 2], items[i + 3]
  local old, of = string.match(redis.call('hget', marks, job) or '', '^(%d+) (.*)$')
  local stays = of == text and (keep == '1' or tonumber(old) >= tonumber(instant))
  if redis.call('hget', jobs, job) == text and not stays then
    redis.call('hset', marks, job, instant .. ' ' .. text)
  end
end
return 1
