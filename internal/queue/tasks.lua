-- tasks.lua: messages of tasks. It stands after wake.lua and lanes.lua, before the scripts that put such messages into the queue, or claim
-- them.
--
-- A task has a number in meta: t: and its name is the field, and the field tasks says how many there are.
--
-- Returns  nothing. It defines
--          numbered    returns bytes 15 and 16 of a member for the first of them, a colon and a task, and notes the task in fresh if it is
--                      new; nothing for the 101st task
--          handled     returns the numbers of tasks that a caller works on, each with how many of its messages it wants, from a list of
--                      names and counts
--          due_of      returns up to n messages that are due, with their scores, of tasks of which counts has some left, those of the highest
--                      priority first; and takes them off the counts
--          numbers_in  returns the numbers of which counts has some left, as bytes
--          first_of    returns when the first message is due of the tasks in counts, µs; or nothing
--          task_terms  returns the task of a body's own terms, and the client that waits for its end, or nothing
--          remember    notes which messages of tasks are removed, before they are, and whom to tell
--          pass_on     has others look in when the first message is due of each task of which counts has none left; taken is how many are
--                      claimed of each lane
local function numbered(meta, marker, fresh)
  local name = string.sub(marker, 3)
  local number = fresh[':' .. name] or tonumber(redis.call('hget', meta, 't:' .. name) or '')
  if not number then
    number = (fresh.count or tonumber(redis.call('hget', meta, 'tasks') or 0)) + 1
    if number > 100 then return end
    fresh.count, fresh[':' .. name] = number, number
    for _, value in ipairs({'t:' .. name, number, 'tasks', number}) do fresh[#fresh + 1] = value end
  end
  return string.sub(marker, 1, 1) .. string.char(48 + number)
end

local function handled(meta, items, from)
  local fields, counts = {}, {}
  for i = from, #items, 2 do fields[#fields + 1] = 't:' .. items[i] end
  for i, number in ipairs(#fields > 0 and redis.call('hmget', meta, unpack(fields)) or {}) do
    if number then counts[tonumber(number)] = tonumber(items[from + 2 * i - 1]) end
  end
  return counts
end

local function due_of(queue, now, n, counts)
  local due, found, level, priority = queue.due, {}, {}, nil
  local function merge()
    table.sort(level, function(a, b) return a.at < b.at or a.at == b.at and a.member < b.member end)
    for _, m in ipairs(level) do
      local task = task_of(m.member)
      if #found < 2 * n and counts[task] > 0 then
        counts[task], found[#found + 1], found[#found + 2] = counts[task] - 1, m.member, m.score
      end
    end
    level = {}
  end
  local lane, first = next_lane(due, exact(claimable))
  while lane and lane < 0 do
    if math.floor(-lane / width / 101) ~= priority then merge() end
    if #found >= 2 * n then break end
    priority = math.floor(-lane / width / 101)
    local last, most = split(lane, now), math.min(counts[task_in(lane)] or 0, n - #found / 2)
    local ready = most > 0 and first <= last and redis.call('zrangebyscore', due, exact(lane), exact(last), 'withscores', 'limit', 0, most) or {}
    for i = 1, #ready, 2 do level[#level + 1] = {member = ready[i], score = ready[i + 1], at = due_at(ready[i + 1])} end
    lane, first = next_lane(due, exact(lane + width))
  end
  merge()
  return found
end

local function numbers_in(counts)
  local text = ''
  for number, n in pairs(counts) do
    if n > 0 then text = text .. string.char(48 + number) end
  end
  return text
end

local function first_of(due, counts)
  local lane, first = next_lane(due, exact(claimable))
  local at
  while lane and lane < 0 do
    if (counts[task_in(lane)] or 0) > 0 then at = math.min(at or math.huge, due_at(first)) end
    lane, first = next_lane(due, exact(lane + width))
  end
  return at
end

local function task_terms(own) return string.match(' ' .. own, ' T(%S+) ?w?(%S*)') end

local function remember(queue, ids, now, keep, tell)
  local done, receipts, bodies = queue.done, queue.receipts, queue.bodies
  local left = redis.call('pttl', done)
  for _, id in ipairs(ids) do
    local task, client = task_terms(string.match(redis.call('hget', bodies, id) or '', '^[^\n]*', 26) or '')
    redis.call('zadd', done, string.format('%.0f', now + keep * 1000), '\1' .. id)
    redis.call('hset', receipts, '\1' .. id, task or '')
    if client and client ~= '' then tell[#tell + 1] = {queue.channel .. client .. ':ends', id} end
  end
  if #ids == 0 or left >= keep then return end
  redis.call('pexpire', done, 2 * keep)
  redis.call('pexpire', receipts, 2 * keep)
end

local function pass_on(queue, taken, counts, now)
  local due = queue.due
  local lane, first = next_lane(due, exact(claimable))
  while lane and lane < 0 do
    if taken[lane] then
      first = redis.call('zrangebyscore', due, exact(lane), exact(lane + width - 1), 'withscores', 'limit', taken[lane], 1)[2]
    end
    if first and (counts[task_in(lane)] or 0) <= 0 then
      queue.task = task_in(lane)
      wake(queue, math.max(due_at(first), now), now)
    end
    lane, first = next_lane(due, exact(lane + width))
  end
  queue.task = nil
end
