-- expire.lua: see to messages whose claims or attempts ran out. It stands after series.lua, before claim.lua.
--
-- Returns  nothing. It defines expire, which makes up to 100 messages due again whose claims ran out, and sets queue.expiry to when the next
--          claim does, µs; due_now, which returns up to n messages that are due, those of the highest priority first, and their scores, of
--          the tasks in counts if there is one, and true if some are in lanes; bounds_of, which returns how many attempts a body allows,
--          limit unless it says so itself, and its expiry, µs, or nothing; and exhaust, which makes dead letters of messages that have no
--          attempts left or were not begun in time, and adds each to the reply: its member, nothing, its attempts, its task, the last error.
--          It has a client look in for the groups of these if wakes is the time. Of what an ACL forbids, each message is left where it is.
local function expire(queue, claims, errors, now)
  local due, flight = queue.due, queue.flight
  queue.expiry = redis.call('zrange', flight, 0, 0, 'withscores')[2]
  if tonumber(queue.expiry or math.huge) > tonumber(now) then return end
  local expired = redis.call('zrangebyscore', flight, '-inf', now, 'withscores', 'limit', 0, 100)
  for i = 1, #expired, 2 do
    local member, at = expired[i], expired[i + 1]
    local latest, digits = redis.call('hget', claims, string.sub(member, 17)) or '', string.rep('%d', 16)
    local replaced, claim, client = string.match(latest, '^r' .. digits .. '(%d+)'), string.match(latest, '^h(' .. digits .. ')%d+ (.*)$')
    if claim then tried(errors, string.sub(member, 17), '', claim, '-', client) end
    redis.call('zadd', due, exact(score(member, replaced or at, tonumber(now))), member)
    redis.call('zrem', flight, member)
    if replaced then redis.call('hdel', claims, string.sub(member, 17)) end
    if is_grouped(member) then arrange(queue, {member}, nil, {[member] = {replaced}}) end
  end
  queue.expiry = redis.call('zrange', flight, 0, 0, 'withscores')[2]
end

local function due_in_lanes(queue, now, n, counts)
  local due = queue.due
  local lane, first = next_lane(due, '-inf')
  for _, member in ipairs(lane == removed and redis.call('zrangebyscore', due, exact(removed), exact(split(removed, now)), 'limit', 0, 100) or {}) do
    redis.call('zrem', due, member)
    arrange(queue, {member})
  end
  if lane and lane < claimable then lane, first = next_lane(due, exact(claimable)) end
  if counts then return due_of(queue, now, n, counts, lane, first) end
  local found = {}
  while lane and #found < 2 * n do
    local last = split(lane, now)
    local ready = first <= last and redis.call('zrangebyscore', due, exact(lane), exact(last), 'withscores', 'limit', 0, n - #found / 2) or {}
    for _, value in ipairs(ready) do found[#found + 1] = value end
    if lane >= 0 then break end
    lane, first = next_lane(due, exact(lane + width))
  end
  return found
end

local function due_now(queue, now, n, laned, counts)
  local ready = laned and {} or redis.call('zrangebyscore', queue.due, '-inf', string.format('%.0f', now), 'withscores', 'limit', 0, n)
  if not laned and (#ready == 0 or tonumber(ready[2]) >= 0) then return ready end
  return due_in_lanes(queue, now, n, counts), true
end

local function bounds_of(body, limit)
  local own = (string.byte(body, 17) or 97) < 97 and string.match(body, '^[^gT\n]+', 26)
  if not own then return tonumber(limit) end
  return tonumber(string.match(own, 'a(%d+)') or limit), tonumber(string.match(own, 'e(%d+)') or '')
end

local function exhaust(queue, dead, errors, spent, now, reply, wakes)
  local due = queue.due
  count(queue.series, now, 'x', #spent)
  for _, message in ipairs(spent) do
    local member, id, r = message.member, string.sub(message.member, 17), #reply
    local text = give_up(errors, id, message.why, 'no attempt ended within the visibility')
    redis.call('zadd', dead, now, member)
    redis.call('zrem', due, member)
    arrange(queue, {member}, wakes)
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = member, '', message.attempts, message.task or ''
    reply[r + 5] = text
  end
end

