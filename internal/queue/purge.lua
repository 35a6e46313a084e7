-- purge.lua: remove up to 100 messages of one sorted set for good. Their ids are free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  the sorted set: due, flight or dead
-- KEYS[4]  bodies: hash, id -> body
-- KEYS[5]  claims: hash, id -> latest claim
-- KEYS[6]  errors: hash, id -> text of the last error
-- KEYS[7]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[8]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[9]  waiters: sorted set, clients that hear wake-ups
-- KEYS[10] groups: sorted set, see group.lua
-- KEYS[11] places: hash, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  1 for those whose time has come, 0 for those whose time has not, -1 for all
-- ARGV[4]  prefix of the clients' channels
--
-- Returns  an array: the number of messages removed, of which 100 say that there may be more; or as once.lua says
local meta, record, set, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local due, flight, waiters, groups, places = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local layout, number, passed, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('zrem', set, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local members, ids, lane = {}, {}, next_lane(set, exact(removed + width))
  while lane and #members < 100 do
    local least, last = span(lane, passed, now)
    for _, member in ipairs(redis.call('zrangebyscore', set, least, last, 'limit', 0, 100 - #members)) do
      members[#members + 1], ids[#ids + 1] = member, string.sub(member, 17)
    end
    lane = lane < 0 and next_lane(set, exact(lane + width))
  end
  if #members > 0 then
    local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
    if some_grouped(members) then try(queue) end
    local states = redis.call('hmget', claims, unpack(ids))
    freed(meta, channel, #members)
    bury({meta = meta, bodies = bodies, claims = claims, errors = errors, now = exact(now)}, ids)
    if set ~= flight then redis.call('zrem', set, unpack(members)) end
    for i, member in ipairs(set == flight and members or {}) do
      remove(queue, set, member, string.match(states[i] or '', '^[hr](' .. string.rep('%d', 16) .. ')'), now)
    end
    arrange(queue, members, now)
  end
  return {#members}
end)
