-- reschedule.lua: set anew when messages that wait may be taken.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[4]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[6]  waiters: sorted set, clients that hear wake-ups
-- KEYS[7]  groups: sorted set, see group.lua
-- KEYS[8]  places: hash, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
-- ARGV[4..n]  for each message: id, delay from now in µs
--
-- Returns  an array: for each id 1 if it was set, 0 if no message of this id waits; or as once.lua says
local meta, record, due, flight, bodies, waiters, groups, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local layout, channel, number, items = ARGV[1], ARGV[2], ARGV[3], ARGV

redis.call('zrem', due, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local reply, scores, members, fresh, earliest = {}, {}, {}, {}, nil
  for i = 4, #items, 2 do
    local id, delay = items[i], tonumber(items[i + 1])
    local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
    local ends = redis.call('zscore', flight, member)
    local waits = ends and tonumber(ends) <= now or redis.call('zscore', due, member)
    reply[#reply + 1] = waits and 1 or 0
    if waits then
      local at = delay > 0 and now + delay + 1 or now
      scores[#scores + 1], scores[#scores + 2] = exact(score(member, at, now)), member
      members[#members + 1], fresh[member], earliest = member, {at}, math.min(earliest or at, at)
    end
  end
  if earliest then
    local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
    if some_grouped(members) then try(queue) end
    wake(queue, earliest, now)
    redis.call('zadd', due, unpack(scores))
    redis.call('zrem', flight, unpack(members)) -- of those whose claims ran out
    arrange(queue, members, now, fresh)
  end
  return reply
end)
