-- claim.lua: claim what is due.
--
-- KEYS[1]  meta: hash; paused is 1, or when the pause ends, µs; rate as rate.lua says; lanes is there if it has had messages that are
--          not plain
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> body
-- KEYS[6]  claims: hash, id -> the latest claim, see states.md
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  waiters: sorted set, clients that hear wake-ups
-- KEYS[9]  the caller's last claim: its number, then member, claim and score of what it claimed, line by line
-- KEYS[10] groups: sorted set, see group.lua
-- KEYS[11] places: hash, see group.lua
-- KEYS[12] series: hash, see series.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  messages wanted
-- ARGV[4]  visibility, µs
-- ARGV[5]  attempts allowed, 0 for no limit
-- ARGV[6]  the caller: a client's id
-- ARGV[7]  number of this call, higher than those before
-- ARGV[8]  bytes of bodies after which to stop
-- ARGV[9]  how many may be claimed in a period, 0 for any number
-- ARGV[10]  the period, µs
-- ARGV[11]  how many more messages to look at, should some become dead letters
-- ARGV[12] for how long the caller hears wake-ups if nothing more is due, µs; 0 if it does not, or asks wait.lua then
-- ARGV[13] how much later than another client it looks in as the spare, µs
-- ARGV[14..n]  of a caller that works on tasks: a task, and how many of its messages it wants at most
--
-- Returns  an array: 0, 1 if more may be due than was looked at, 2 if the rate allows no more now, -1 if the call was settled before, or -v
--          for a layout of the higher version v; then as wait.lua, or -2 if the caller was not noted among those that hear wake-ups; then
--          for each message its member, claim, attempt, score and body; then what exhaust adds
local meta, due, flight, dead, bodies, claims, errors, waiters, record, groups, places, series =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local layout, channel, wanted, visibility, limit = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local client, number, most, count, period, more, listens, later, items =
  ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV

local head = redis.call('hmget', meta, 'layout', 'last', 'paused', 'rate', 'lanes', unpack(number_fields(items, 14)))
if tonumber(head[1] or 0) > layout then return {-tonumber(head[1])} end
if tonumber(string.match(redis.call('get', record) or '0', '^%d+')) >= tonumber(number) then return {-1} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
-- This comes first: a full Redis allows this write, and then the rest of the script.
redis.call('zrem', waiters, client)
local counts = items[14] and handled(head, 5, items, 14)
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places, series = series}
if head[5] and redis.call('exists', groups, places) > 0 then try(queue) end
expire(queue, claims, errors, stamp)
local paused = head[3] == '1' or tonumber(head[3] or 0) > now
local quota = count > 0 and math.min(wanted, allowed(head[4], now, count, period)) or wanted
local ready, laned = {}, counts or head[5]
if not paused and quota > 0 then ready, laned = due_now(queue, now, quota + more, laned, counts) end
local ids, spent, taken, flying, held = {}, {}, {}, {}, {}
for i = 1, #ready, 2 do
  ids[#ids + 1] = string.sub(ready[i], 17)
end
local states = #ids > 0 and redis.call('hmget', claims, unpack(ids)) or {}
local reply, lines, size, lateness = {quota < wanted and 2 or 0, -2}, {number}, 0, 0
local last, ends = math.max(tonumber(head[2] or 0), now), now + visibility
local runs_out = exact(ends)
for n, id in ipairs(ids) do
  if #taken == quota then break end
  local member, at, latest, body = ready[2 * n - 1], ready[2 * n], states[n] or '', redis.call('hget', bodies, id) or ''
  local letter = string.sub(latest, 1, 1)
  local attempt = letter == 'r' and 1 or 1 + (tonumber(string.match(latest, '^%d+', 18) or '') or 0)
  local attempts, expiry = bounds_of(body, limit)
  local expired = expiry and attempt == 1 and letter ~= 's' and due_at(at) + expiry < now
  if expired or attempts > 0 and attempt > attempts then
    local task = counts and string.match(body, '^[^\n]* T(%S+)', 26)
    spent[#spent + 1], reply[1] = {member = member, attempts = attempt - 1, task = task, why = expired and 'expired'}, 1
  else
    size = size + #body
    if #taken > 0 and size > most then reply[1] = 1 break end
    last, lateness = last + 1, math.max(lateness, now - due_at(at))
    local claim, r, l = string.format('%016.0f', last), #reply, #lines
    taken[#taken + 1], flying[#flying + 1], flying[#flying + 2] = member, runs_out, member
    held[#held + 1], held[#held + 2] = id, 'h' .. claim .. (letter == 's' and '0' or '') .. attempt .. ' ' .. client
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = member, claim, attempt, at, body
    lines[l + 1], lines[l + 2], lines[l + 3] = member, claim, at
  end
end
-- A caller that has all it wanted may not come back, so somebody else looks in when the next message is due.
local full = #taken == wanted
local left = not counts or redis.call('zcard', due) > #taken + #spent -- others wait
if counts and left then pass_on(queue, lanes_of(ready, #taken + #spent), full and {} or counts, now) end
if full and redis.call('exists', waiters) == 1 or not full and reply[1] == 0 and listens > 0 then
  local next = left and first_due(due, #taken + #spent, laned and ready, full and counts and {} or counts) or nil
  local at = math.min(tonumber(next or math.huge), tonumber(queue.expiry or math.huge), #taken > 0 and ends or math.huge)
  if full then
    if count > 0 then at = math.max(at, spend(head[4], now, #taken + 1, count, period) - period) end
    wake(queue, at, now)
  else
    at = not (at == math.huge or head[3] == '1') and math.max(at, tonumber(head[3] or 0)) or nil
    if at and at <= now then reply[1] = 1 else reply[2] = rest(queue, client, listens, later, at, now, counts) end
  end
end
if counts and reply[2] == -2 then redis.call('hdel', meta, 'w:' .. client) end -- else rest has noted it
if #spent > 0 then freed(meta, channel, #spent) end
exhaust(queue, dead, errors, spent, stamp, reply, #taken == wanted and now)
if #taken > 0 then
  redis.call('zadd', flight, 'xx', 0, '') -- does nothing, and fails if ZADD would after the claims are noted
  late(series, now, lateness)
  redis.call('set', record, table.concat(lines, '\n'), 'px', 3600000)
  redis.call('hset', claims, unpack(held))
  local noted = {'layout', layout, 'last', string.format('%.0f', last)}
  if count > 0 then noted[5], noted[6] = 'rate', string.format('%.0f', spend(head[4], now, #taken, count, period)) end
  redis.call('hset', meta, unpack(noted))
  redis.call('zrem', due, unpack(taken))
  redis.call('zadd', flight, unpack(flying))
end
local next = start(queue, taken, reply, #taken == wanted and now)
if next and reply[1] == 0 then reply[1] = 1 end
return reply
