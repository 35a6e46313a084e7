-- cancel.lua: remove messages, and notify the clients that have claimed some of them. Their ids are free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  due: sorted set of messages
-- KEYS[4]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[5]  dead: sorted set of dead letters
-- KEYS[6]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[7]  claims: hash, id -> latest claim
-- KEYS[8]  errors: hash, id -> text of the last error
-- KEYS[9]  waiters: sorted set, clients that hear wake-ups
-- KEYS[10] groups: sorted set, see group.lua
-- KEYS[11] places: hash, see group.lua
-- KEYS[12] done: sorted set; this and what follows only in a queue of tasks, which remembers a \1 and the id
-- KEYS[13] receipts: hash
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  prefix of the clients' channels, of which one is notified of an x and the number of the claim
-- ARGV[4]  for how long to remember what was removed in a queue of tasks, ms
-- ARGV[5..n]  ids; in a queue of tasks after the task that it has to be, or nothing, and a \1
--
-- Returns  an array: for each id 1 if it was removed, 0 if there is none, 2 if it is another task; or as once.lua says
local meta, record, due, flight, dead, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local waiters, groups, places, done, receipts = KEYS[9], KEYS[10], KEYS[11], KEYS[13] and KEYS[12], KEYS[13]
local layout, number, channel, keep, asked = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV

redis.call('zrem', due, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local reply, ids, from, members, numbers, found, tell = {}, {}, {}, {}, {}, {}, {}
  for i = 5, #asked do
    local task, id = string.match(asked[i], '^([^\1]*)\1(.*)$')
    id = id or asked[i]
    local body = redis.call('hget', bodies, id) or ''
    local member, other = string.sub(body, 1, 16) .. id, task and task ~= '' and task_terms(body) ~= task
    local ends = redis.call('zscore', flight, member)
    local place = ends and flight or redis.call('zscore', due, member) and due or redis.call('zscore', dead, member) and dead
    reply[i - 4] = place and not found[id] and (other and 2 or 1) or 0
    if reply[i - 4] == 1 then
      found[id], ids[#ids + 1], from[#from + 1], members[#members + 1] = true, id, place, member
      local claim, client = string.match(redis.call('hget', claims, id) or '', '^[hr](' .. string.rep('%d', 16) .. ')%d* (.*)$')
      numbers[#members] = claim
      if ends and client and tonumber(ends) > now then tell[#tell + 1] = {channel .. client, 'x' .. claim} end
    end
  end
  local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places, done = done, receipts = receipts, bodies = bodies}
  if some_grouped(members) then try(queue) end
  if done then remember(queue, ids, now, keep, tell) end
  if #ids > 0 then
    freed(meta, channel, #ids)
    bury({meta = meta, bodies = bodies, claims = claims, errors = errors, now = now, tell = tell}, ids)
  end
  for i, member in ipairs(members) do remove(queue, from[i], member, numbers[i], now) end
  arrange(queue, members, now)
  return reply
end)
