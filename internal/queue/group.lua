-- group.lua: let a group have no more in flight than its limit. It stands after order.lua.
--
-- groups is a sorted set of equal scores. It has q, the group, a zero byte, the place and the member of each message that waits; and w and
-- the group while a message waits for another. A place is the time, µs, at which the message was due when it took it. places has for each
-- member its place, f if it is in flight, the limit, s if a message that waits for its retry lets others pass, a colon, and the group; and
-- after a space the claim under which it was removed in flight, if it was. For a colon and a group it has how many have an f, if any.
-- Of a message with the limit 1 its claim notes nothing: it stays the first q of its group, and has no f.
--
-- Returns  nothing. It defines terms_of, which returns the limit, s, colon and group of a body from a byte on; and arrange, which is called
--          with messages that were put somewhere or taken away, after that. It notes where those of groups are now, and lets the first
--          of each group that waits be claimed if fewer than the limit are in flight, and no other. A message keeps its place and its
--          terms unless fresh has a place, and maybe terms, for its member. It looks up where they are, unless is says where: flight, or gone.
--          It returns when the first message is due that may be claimed since, µs, or nothing; and has a client look in then if it is told
--          the time. start does so for messages that were claimed, in the order of reply, which is that of claim.lua.
local function terms_of(body, from) return string.match(string.match(body, '^[^\n]*', from), 'g(%d+s?:%S+)') or '1:' end

local function arrange(queue, members, now, fresh, is)
  local due, flight, groups, places = queue.due, queue.flight, queue.groups, queue.places
  local grouped, seen, all, counted, adds, began, names, ordered, dropped, added, lost, noted = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
  for _, member in ipairs(members) do
    if is_grouped(member) and not seen[member] then grouped[#grouped + 1], seen[member] = member, true end
  end
  if #grouped == 0 then return end
  local was = redis.call('hmget', places, unpack(grouped))
  local stand, fly = is and {} or redis.call('zmscore', due, unpack(grouped)), is and {} or redis.call('zmscore', flight, unpack(grouped))
  for i, member in ipairs(grouped) do
    local new, stands, value = fresh and fresh[member], tonumber(stand[i]), was[i] or nil
    local old, flew = value and string.sub(value, 1, 16), value and string.byte(value, 17) == 102
    local terms, place = new and new[2] or value and string.sub(value, flew and 18 or 17), new and new[1]
    if terms then
      local limit, skips, group = string.match(terms, '^(%d+)(s?):(%S*)')
      local kept = stands and lane_of(stands) == removed
      local waits, flies = stands and not kept, kept or fly[i] or is == 'flight'
      if waits and skips == 's' then place = due_at(stands) end
      local stamp, queued = place and string.format('%016.0f', tonumber(place)) or old, old and not flew
      local stays = queued and waits and old == stamp
      if queued and not stays then dropped[#dropped + 1] = 'q' .. group .. '\0' .. old .. member end
      if waits and not stays then added[#added + 1], added[#added + 2] = 0, 'q' .. group .. '\0' .. stamp .. member end
      local text = (waits or flies) and stamp .. (flies and 'f' or '') .. terms
      if text and text ~= value then noted[#noted + 1], noted[#noted + 2] = member, text end
      if value and not text then lost[#lost + 1] = member end
      if not adds[group] then adds[group], began[group] = 0, 0 end
      if not counted[group] and (flew or not (is and limit == '1')) then all[#all + 1], counted[group] = group, true end
      adds[group] = adds[group] + (waits and 1 or 0)
      began[group] = began[group] + (flies and 1 or 0) - (flew and 1 or 0)
      if not (flies and limit == '1') and not ordered[group] then names[#names + 1], ordered[group] = group, true end
    end
  end
  local flying = tally(queue, all, began, lost, noted)
  if #dropped > 0 then redis.call('zrem', groups, unpack(dropped)) end
  if #added > 0 then redis.call('zadd', groups, unpack(added)) end
  if #lost > 0 then redis.call('hdel', places, unpack(lost)) end
  if #noted > 0 then redis.call('hset', places, unpack(noted)) end
  return order(queue, names, adds, flying, now)
end

local function start(queue, members, reply, now)
  local noted = {}
  for i, member in ipairs(members) do
    if is_grouped(member) and string.match(reply[5 * i + 2], '^[^gT\n]*g(%d+)', 26) ~= '1' then noted[#noted + 1] = member end
  end
  return arrange(queue, noted, now, nil, 'flight')
end
