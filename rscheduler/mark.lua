-- mark.lua: move the marks of jobs whose schedule and mark have not changed meanwhile.
--
-- KEYS[1]  jobs: hash, job -> text of its schedule
-- KEYS[2]  marks: hash, see beat.lua
-- ARGV[1..n]  for each job: its name, the text of its schedule, its mark so far or nothing, its new mark
--
-- Returns  1
local jobs, marks, items = KEYS[1], KEYS[2], ARGV

redis.call('hdel', marks, '') -- does nothing; a full Redis refuses only the first write of a script, and never one that frees memory
for i = 1, #items, 4 do
  local job, text, old, new = items[i], items[i + 1], items[i + 2], items[i + 3]
  if redis.call('hget', jobs, job) == text and (redis.call('hget', marks, job) or '') == old then
    redis.call('hset', marks, job, new)
  end
end
return 1
