-- tasks.lua: messages of tasks that wait. It stands after wake.lua and lanes.lua, before the scripts that claim them. counts is a table of
-- numbers.lua.
--
-- Returns  nothing. It defines due_of, which returns up to n messages that are due, with their scores, of tasks of which counts has some
--          left, those of the highest priority first, from a lane and the first score in it on, and takes them off counts; and pass_on,
--          which has others look in when the first message is due of each task of which counts has none left, if that is before a time: the
--          first after as many as taken has for its lane.
local function due_of(queue, now, n, counts, lane, first)
  local due, found, level, priority = queue.due, {}, {}, nil
  local function merge()
    table.sort(level, function(a, b) return a.at < b.at or a.at == b.at and a.member < b.member end)
    for _, m in ipairs(level) do
      local task = m.task
      if #found < 2 * n and counts[task] > 0 then
        counts[task], found[#found + 1], found[#found + 2] = counts[task] - 1, m.member, m.score
      end
    end
    level = {}
  end
  while lane and lane < 0 do
    if math.floor(-lane / width / 101) ~= priority then merge() end
    if #found >= 2 * n then break end
    priority = math.floor(-lane / width / 101)
    local last, most = split(lane, now), math.min(counts[task_in(lane)] or 0, n - #found / 2)
    local ready = most > 0 and first <= last and redis.call('zrangebyscore', due, exact(lane), exact(last), 'withscores', 'limit', 0, most) or {}
    for i = 1, #ready, 2 do level[#level + 1] = {member = ready[i], score = ready[i + 1], at = due_at(ready[i + 1]), task = task_in(lane)} end
    lane, first = next_lane(due, exact(lane + width))
  end
  merge()
  return found
end

local function pass_on(queue, taken, counts, now, before)
  local due, waiters = queue.due, queue.waiters
  if redis.call('exists', waiters) == 0 then return end
  local lane, first = next_lane(due, exact(claimable))
  while lane and lane < 0 do
    if taken[lane] then
      first = redis.call('zrangebyscore', due, exact(lane), exact(lane + width - 1), 'withscores', 'limit', taken[lane], 1)[2]
    end
    if first and (counts[task_in(lane)] or 0) <= 0 and due_at(first) < (before or math.huge) then
      queue.task = task_in(lane)
      wake(queue, math.max(due_at(first), now), now)
    end
    lane, first = next_lane(due, exact(lane + width))
  end
  queue.task = nil
end
