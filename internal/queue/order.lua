-- order.lua: let the next message of a group be claimed. It stands after lanes.lua and wake.lua, before group.lua.
--
-- Returns  nothing. It defines tally, which returns how many are in flight of each of some groups, where began says how many more there are
--          than before, and adds to lost and noted what is to be changed of places; and order, which sees to the first message of each of
--          some groups. adds has how many messages of a group may have come to wait, and flying what tally returned. order returns when the
--          first message is due that may be claimed since, µs, or nothing.
local function tally(queue, names, began, lost, noted)
  local places, fields, flying = queue.places, {}, {}
  for i, group in ipairs(names) do fields[i] = ':' .. group end
  for i, before in ipairs(#names > 0 and redis.call('hmget', places, unpack(fields)) or {}) do
    local n = math.max(0, tonumber(before or 0) + began[names[i]])
    flying[names[i]] = n
    if n > 0 and began[names[i]] ~= 0 then noted[#noted + 1], noted[#noted + 2] = fields[i], exact(n) end
    if n == 0 and before then lost[#lost + 1] = fields[i] end
  end
  return flying
end

local function order(queue, names, adds, flying, now)
  local due, groups, places = queue.due, queue.groups, queue.places
  local members, firsts, of, entries, waits, full, moved, waits_on, waits_off, notes, earliest = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, nil
  for _, group in ipairs(names) do
    local waiting = redis.call('zrangebylex', groups, '[q' .. group .. '\0', '(q' .. group .. '\1', 'limit', 0, 1 + math.max(adds[group], 1))
    waits[group] = #waiting
    for i = 1, adds[group] > 0 and #waiting or math.min(#waiting, 1) do
      members[#members + 1] = string.sub(waiting[i], #group + 19)
      of[#members], firsts[#members], entries[#members] = group, i == 1, waiting[i]
    end
    if #waiting == 0 then waits_off[#waits_off + 1] = 'w' .. group end
  end
  local stand, limits = #members > 0 and redis.call('zmscore', due, unpack(members)) or {}, {}
  for i, member in ipairs(members) do
    local group = of[i]
    if not firsts[i] and not stand[i] then -- it is in flight, and is not the first any more
      local value, field = redis.call('hget', places, member), ':' .. group
      flying[group], waits[group] = flying[group] + 1, waits[group] - 1
      redis.call('zrem', groups, entries[i])
      if value then redis.call('hset', places, member, string.sub(value, 1, 16) .. 'f' .. string.sub(value, 17), field, exact(flying[group])) end
    end
  end
  for i, member in ipairs(members) do
    if firsts[i] and (flying[of[i]] or 0) > 0 then full[#full + 1] = member end
  end
  for i, terms in ipairs(#full > 0 and redis.call('hmget', places, unpack(full)) or {}) do
    limits[full[i]] = tonumber(string.match(terms or '', '^%d+', 17) or 1)
  end
  for i, member in ipairs(members) do
    local group, stands = firsts[i] and of[i], tonumber(stand[i])
    local busy = group and not stands -- it is in flight
    local may = group and not busy and (flying[group] or 0) < (limits[member] or 1)
    if stands and (stands < claimable) == (may or false) then
      local at = due_at(stands)
      moved[#moved + 1], moved[#moved + 2] = exact(score(member, at, nil, may)), member
      if may then
        earliest = math.min(earliest or at, at)
        note(notes, task_of(member), math.max(at, now or at))
      end
    end
    if group and (waits[group] > 1 and (adds[group] > 0 or busy) or not may and not busy) then
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
