-- group.lua: let a group have no more in flight than its limit. It stands after lanes.lua and wake.lua.
--
-- groups is a sorted set of equal scores. It has q, the group, a zero byte, the place and the member of each message that waits; r, the
-- group, a zero byte and the member of each that is in flight; and w and the group while a message waits for another. A place is the time,
-- µs, at which the message was due when it took it. places has for each member its place, the limit, s if a message that waits for its
-- retry lets others pass, a colon, and the group; and after a space the claim under which it was removed in flight, if it was.
--
-- Returns  nothing. It defines terms_of, which returns the limit, s, colon and group of a body from a byte on; and arrange, which is called
--          with messages that were put somewhere or taken away, after that. It notes where those of groups are now, and lets the first
--          of each group that waits be claimed if fewer than the limit are in flight, and no other. A message keeps its place and its
--          terms unless fresh has a place, and maybe terms, for its member. It returns when the first message is due that may be
--          claimed since, µs, or nothing; and has a client look in then if it is told the time.
local function terms_of(body, from) return string.match(string.match(body, '^[^\n]*', from), 'g(%d+s?:%S+)') or '1:' end

-- order sees to the first message of each of some groups: adds says how many have come into each.
local function order(queue, names, adds, now)
  local due, groups, places = queue.due, queue.groups, queue.places
  local members, firsts, waits, moved, waits_on, waits_off, notes, earliest = {}, {}, {}, {}, {}, {}, {}, nil
  for _, group in ipairs(names) do
    local head, after = group .. '\0', group .. '\1'
    local waiting = redis.call('zrangebylex', groups, '[q' .. head, '(q' .. after, 'limit', 0, 1 + math.max(adds[group], 1))
    waits[group] = #waiting
    for i = 1, adds[group] > 0 and #waiting or math.min(#waiting, 1) do
      members[#members + 1] = string.sub(waiting[i], #head + 18)
      if i == 1 then firsts[#members] = group end
    end
    if #waiting == 0 then waits_off[#waits_off + 1] = 'w' .. group end
  end
  local stand = #members > 0 and redis.call('zmscore', due, unpack(members)) or {}
  local terms = #members > 0 and redis.call('hmget', places, unpack(members)) or {}
  for i, member in ipairs(members) do
    local group, stands = firsts[i], tonumber(stand[i])
    local flying = group and redis.call('zlexcount', groups, '[r' .. group .. '\0', '(r' .. group .. '\1')
    local may = group and flying < tonumber(string.match(terms[i] or '', '^%d+', 17) or 1)
    if stands and (stands < claimable) == (may or false) then
      local at = due_at(stands)
      moved[#moved + 1], moved[#moved + 2] = exact(score(member, at, nil, may)), member
      if may then
        earliest = math.min(earliest or at, at)
        note(notes, task_of(member), math.max(at, now or at))
      end
    end
    if group and (waits[group] > 1 and adds[group] > 0 or not may) then
      waits_on[#waits_on + 1], waits_on[#waits_on + 2] = 0, 'w' .. group
    elseif group and waits[group] < 2 then
      waits_off[#waits_off + 1] = 'w' .. group
    end
  end
  if #moved > 0 then redis.call('zadd', due, unpack(moved)) end
  if #waits_on > 0 then redis.call('zadd', groups, unpack(waits_on)) end
  if #waits_off > 0 then redis.call('zrem', groups, unpack(waits_off)) end
  if now then wake_each(queue, notes, now) end
  return earliest
end

local function arrange(queue, members, now, fresh)
  local due, flight, groups, places = queue.due, queue.flight, queue.groups, queue.places
  local grouped, names, adds, dropped, added, lost, noted = {}, {}, {}, {}, {}, {}, {}
  for _, member in ipairs(members) do
    if is_grouped(member) then grouped[#grouped + 1] = member end
  end
  if #grouped == 0 then return end
  local was, stand = redis.call('hmget', places, unpack(grouped)), redis.call('zmscore', due, unpack(grouped))
  local fly = redis.call('zmscore', flight, unpack(grouped))
  for i, member in ipairs(grouped) do
    local new, stands = fresh and fresh[member], tonumber(stand[i])
    local old, place = was[i] and string.sub(was[i], 1, 16), new and new[1]
    local terms = new and new[2] or old and string.sub(was[i], 17)
    if terms then
      local limit, skips, group = string.match(terms, '^(%d+)(s?):(%S*)')
      local kept = stands and lane_of(stands) == removed
      local waits, flies = stands and not kept, kept or fly[i]
      if waits and skips == 's' then place = due_at(stands) end
      local stamp = place and string.format('%016.0f', tonumber(place)) or old
      local waiting, running = 'q' .. group .. '\0', 'r' .. group .. '\0' .. member
      if old and (not waits or old ~= stamp) then dropped[#dropped + 1] = waiting .. old .. member end
      if flies then added[#added + 1], added[#added + 2] = 0, running else dropped[#dropped + 1] = running end
      if not waits and not flies then lost[#lost + 1] = member end
      if (waits or flies) and (new or stamp ~= old) then noted[#noted + 1], noted[#noted + 2] = member, stamp .. terms end
      if waits then added[#added + 1], added[#added + 2] = 0, waiting .. stamp .. member end
      if not flies or limit ~= '1' then
        if not adds[group] then names[#names + 1], adds[group] = group, 0 end
        if waits then adds[group] = adds[group] + 1 end
      end
    end
  end
  if #dropped > 0 then redis.call('zrem', groups, unpack(dropped)) end
  if #added > 0 then redis.call('zadd', groups, unpack(added)) end
  if #lost > 0 then redis.call('hdel', places, unpack(lost)) end
  if #noted > 0 then redis.call('hset', places, unpack(noted)) end
  return order(queue, names, adds, now)
end
