-- group.lua: let a group have no more in flight than its limit. It stands after lanes.lua and wake.lua.
--
-- groups is a sorted set of equal scores. It has q, the group, a zero byte, the place and the member of each message that waits; r, the
-- group, a zero byte and the member of each that is in flight; and w and the group while a message waits for another. A place is the time,
-- µs, at which the message was due when it took it. places has for each member its place, the limit, s if a message that waits for its
-- retry lets others pass, a colon, and the group.
--
-- Returns  nothing. It defines terms_of, which returns the limit, s, colon and group of a body from a byte on; and arrange, which is called
--          with messages that were put somewhere or taken away, after that. It notes where those of groups are now, and lets the first
--          of each group that waits be claimed if fewer than the limit are in flight, and no other. A message keeps its place and its
--          terms unless fresh has a place, and maybe terms, for its member. It returns when the first message is due that may be
--          claimed since, µs, or nothing; and has a client look in then if it is told the time. And vacate, which ends the claims of messages
--          that were removed in flight; and remove, which takes a message out of one of the sorted sets of a queue, before arrange: one in
--          flight keeps its place until its claim ends.
local function terms_of(body, from) return string.match(string.match(body, '^[^\n]*', from), 'g(%d+s?:%S+)') end

local function order(queue, group)
  local due, groups, places = queue.due, queue.groups, queue.places
  local head, after = group .. '\0', group .. '\1'
  local waiting = redis.call('zrangebylex', groups, '[q' .. head, '(q' .. after, 'limit', 0, 2)
  local flying = redis.call('zlexcount', groups, '[r' .. head, '(r' .. after)
  local ready, blocked = nil, #waiting > 1
  for i, entry in ipairs(waiting) do
    local member = string.sub(entry, #head + 18)
    local stands = tonumber(redis.call('zscore', due, member))
    local may = i == 1 and flying < tonumber(string.match(redis.call('hget', places, member) or '', '^%d+', 17) or 1)
    blocked = blocked or not may
    if stands and (stands < claimable) == may then
      redis.call('zadd', due, exact(score(member, due_at(stands), nil, may)), member)
      ready = may and due_at(stands) or ready
    end
  end
  if blocked then redis.call('zadd', groups, 0, 'w' .. group) else redis.call('zrem', groups, 'w' .. group) end
  return ready
end

local function note(queue, member, place, terms)
  local due, flight, groups, places = queue.due, queue.flight, queue.groups, queue.places
  local was = redis.call('hget', places, member)
  terms = terms or was and string.sub(was, 17)
  if not terms then return end
  local skips, group = string.match(terms, '^%d+(s?):(.*)$')
  local stands = tonumber(redis.call('zscore', due, member))
  local gone = stands and lane_of(stands) == removed
  local waits, flies = stands and not gone, gone or redis.call('zscore', flight, member)
  local stamp = string.format('%016.0f', waits and skips == 's' and due_at(stands) or tonumber(place or string.sub(was, 1, 16)))
  local running, waiting = 'r' .. group .. '\0' .. member, 'q' .. group .. '\0'
  if was and (not waits or string.sub(was, 1, 16) ~= stamp) then redis.call('zrem', groups, waiting .. string.sub(was, 1, 16) .. member) end
  if waits then redis.call('zadd', groups, 0, waiting .. stamp .. member) end
  if flies then redis.call('zadd', groups, 0, running) else redis.call('zrem', groups, running) end
  if not waits and not flies then
    redis.call('hdel', places, member)
  elseif was ~= stamp .. terms then
    redis.call('hset', places, member, stamp .. terms)
  end
  return order(queue, group)
end

local function arrange(queue, members, now, fresh)
  local earliest
  for _, member in ipairs(members) do
    if is_grouped(member) then
      local place, terms = unpack(fresh and fresh[member] or {})
      local at = note(queue, member, place, terms)
      earliest = at and math.min(earliest or at, at) or earliest
    end
  end
  if earliest and now then wake(queue, math.max(earliest, now), now) end
  return earliest
end

local function vacate(queue, members, now)
  local due = queue.due
  for _, member in ipairs(members) do
    local stands = is_grouped(member) and tonumber(redis.call('zscore', due, member))
    if stands and lane_of(stands) == removed then
      redis.call('zrem', due, member)
      arrange(queue, {member}, now)
    end
  end
end

local function remove(queue, set, member)
  local due = queue.due
  local ends = set == queue.flight and is_grouped(member) and redis.call('zscore', set, member)
  redis.call('zrem', set, member)
  if ends then redis.call('zadd', due, exact(math.ceil(ends / 1000) - epoch + removed), member) end
end

