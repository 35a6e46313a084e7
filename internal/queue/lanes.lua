-- lanes.lua: how messages stand in the sorted set of those that wait. It stands before the scripts that put messages there, or look at them.
--
-- The score of a plain message is the time at which it is due, µs. One with a priority, a group or a task has a letter as byte 15 of its
-- member, from a to j for the priorities 0 to 9, a capital one if it has a group, and 14 hexadecimal digits before it. Byte 16 less 48 is the
-- number of its task, from 1 to 100, or 0. It stands in a lane, which is a range of negative scores: the time in ms since 2000, less width
-- for each lane below. Lane 101 n + t is that of priority n and task t, so those to claim first stand first; plain messages are lane 0. 1024
-- lanes below each is that of the messages which wait for a place in their group; lane 2040 has members of messages that were removed in
-- flight: each keeps its place in its group until then.
--
-- Returns  nothing. It defines is_grouped, which returns whether a member has a group; task_of, which returns the number of the task of a
--          member, or nothing; task_in, which does so for a lane; score, which returns that of a member that is due at a time, now for one,
--          and whether it may be claimed; due_at, which returns the time, µs, of a score; lane_of, which returns the least score of its
--          lane; next_lane, which does so for the first score from another on, and returns that too; split, which returns the score of a
--          lane that is due now; span, which returns the bounds of the scores of a lane that are due (passed is 1), are not (0), or of all
--          (-1); lanes_of, which returns how many of the first n messages that are ready are in each lane; and first_due, which returns
--          when the first message is due, µs, or nothing. It leaves out the first passed of those in ready, which has messages and their
--          scores, or is nothing if all are plain. If there is counts it regards only the tasks of which that has some left. A place of a
--          message that was removed counts as one that is due when the place is free.
local width, epoch = 4398046511104, 946684800000
local claimable, removed = -1020 * width, -2040 * width

local function exact(score) return string.format('%.0f', tonumber(score)) end

local function is_grouped(member)
  local letter = string.byte(member, 15) or 48
  return letter >= 65 and letter < 97
end

local function task_of(member)
  local number = (string.byte(member, 15) or 48) >= 65 and string.byte(member, 16) - 48 or 0
  return number > 0 and number or nil
end

local function task_in(lane)
  local number = -lane / width % 1024 % 101
  return number > 0 and number or nil
end

local function score(member, at, now, may)
  local letter = string.byte(member, 15) or 48
  if letter < 65 then return at end
  local lane = (letter % 32 - 1) * 101 + string.byte(member, 16) - 48
  if letter < 97 and not may then lane = lane + 1024 end
  if lane == 0 then return at end
  return (now and tonumber(at) <= now and math.floor or math.ceil)(at / 1000) - epoch - lane * width
end

local function due_at(stands)
  local at = tonumber(stands)
  return at >= 0 and at or (at % width + epoch) * 1000
end

local function lane_of(stands) return stands >= 0 and 0 or math.floor(stands / width) * width end

local function next_lane(due, from)
  local first = tonumber(redis.call('zrangebyscore', due, from, '+inf', 'withscores', 'limit', 0, 1)[2])
  return first and lane_of(first), first
end

local function split(lane, now) return lane < 0 and lane + math.floor(now / 1000) - epoch or now end

local function span(lane, passed, now)
  local least, last = exact(lane), lane < 0 and exact(lane + width - 1) or '+inf'
  if passed == '0' then least = '(' .. exact(split(lane, now)) elseif passed == '1' then last = exact(split(lane, now)) end
  return least, last
end

local function lanes_of(ready, n)
  local counts = {}
  for i = 1, n do
    local lane = lane_of(tonumber(ready[2 * i]))
    counts[lane] = (counts[lane] or 0) + 1
  end
  return counts
end

local function first_due(due, passed, ready, counts)
  local plain = passed and not ready and redis.call('zrange', due, passed, passed, 'withscores')
  if plain and tonumber(plain[2] or 0) >= 0 then return plain[2] end
  local skipped = lanes_of(ready, passed or 0)
  local lane, first = next_lane(due, '-inf')
  local at = lane == removed and due_at(first) or nil
  if lane and lane < claimable then lane, first = next_lane(due, exact(claimable)) end
  while lane do
    local counted = not counts or (counts[task_in(lane)] or 0) > 0
    if counted and skipped[lane] then
      local stop = lane < 0 and exact(lane + width - 1) or '+inf'
      first = redis.call('zrangebyscore', due, exact(lane), stop, 'withscores', 'limit', skipped[lane], 1)[2]
    end
    if counted and first then at = math.min(at or math.huge, due_at(first)) end
    if lane >= 0 then break end
    lane, first = next_lane(due, exact(lane + width))
  end
  return at
end
