-- ack.lua: remove messages whose work is done, and remember their ids for a while.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set of messages
-- KEYS[3]  flight: sorted set of claimed messages
-- KEYS[4]  dead: sorted set of dead letters
-- KEYS[5]  bodies: hash, id -> body
-- KEYS[6]  claims: hash, id -> the latest claim, see states.md
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  done: sorted set, ids by the time at which they are forgotten, µs
-- KEYS[9]  receipts: hash, id in done -> number of the claim that was acknowledged; of a task a space, its name, a space, and its result
--          after that
-- KEYS[10] series: hash, see series.lua
-- KEYS[11] waiters: sorted set, clients that hear wake-ups; this and what follows only if some messages are of groups
-- KEYS[12] groups: sorted set, see group.lua
-- KEYS[13] places: hash, see group.lua
-- ARGV[1]  prefix of the clients' channels, on which who waits for tasks is told their ids, line by line, or of one with a small result a
--          \2, the id, and in a second line the result; if producers may wait for room, or some messages are of groups; or nothing
-- ARGV[2..n]  for each message: member, claim, for how long to remember its id in ms; of a task after that a space, the client that waits for
--             its end or nothing, a space, and what is to be remembered
--
-- Returns  an array: for each message 1 if it is done under this claim, 2 if another message has replaced it, which nack.lua makes due,
--          0 if the claim is not its latest
local meta, due, flight, dead, bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local claims, errors, done, receipts, series = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local waiters, groups, places = KEYS[11], KEYS[12], KEYS[13]
local channel, items = ARGV[1], ARGV
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}

if groups then
  redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
  try(queue)
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply, members, ids, forget, numbers, longest, asked, missed, ends = {}, {}, {}, {}, {}, 0, {}, {}, {}
for i = 2, #items, 3 do
  asked[#asked + 1] = string.sub(items[i], 17)
end
local states = redis.call('hmget', claims, unpack(asked))
for n, id in ipairs(asked) do
  local member, claim, keep, client, record = items[3 * n - 1], items[3 * n], tonumber(items[3 * n + 1]), '', nil
  if not keep then
    keep, client, record = string.match(items[3 * n + 1], '^(%d+) (%S*)( .*)$')
    keep = tonumber(keep)
  end
  if string.sub(states[n] or '', 1, 17) == 'h' .. claim then
    members[#members + 1], ids[#ids + 1] = member, id
    forget[#forget + 1], forget[#forget + 2] = string.format('%.0f', now + keep * 1000), id
    numbers[#numbers + 1], numbers[#numbers + 2] = id, claim .. (record or '')
    if client ~= '' then
      local told = ends[client] or {}
      ends[client], told[#told + 1], told.record = told, id, record
    end
    longest = math.max(longest, keep)
    reply[#reply + 1] = 1
  else
    local replaced = string.sub(states[n] or '', 1, 17) == 'r' .. claim or states[n] == 'n' .. claim .. '0' -- nack.lua has run
    missed[#missed + 1] = {member, claim}
    reply[#reply + 1] = replaced and 2 or string.sub(redis.call('hget', receipts, id) or '', 1, 16) == claim and 1 or 0
  end
end
local old = redis.call('zrangebyscore', done, '-inf', string.format('%.0f', now), 'limit', 0, 10 + 2 * #ids)
old[#old + 1] = '' -- without an old one they do nothing, and fail if those below would
redis.call('zrem', done, unpack(old))
redis.call('hdel', receipts, unpack(old))
if #ids == 0 then
  if groups then vacate(queue, missed, now) end
  return reply
end
if channel ~= '' then freed(meta, channel, #ids) end
for client, told in pairs(ends) do
  local result = #told == 1 and #told.record < 4096 and '\2' .. told[1] .. '\n' .. told.record
  redis.call('publish', channel .. client .. ':ends', result or table.concat(told, '\n'))
end
local left = redis.call('pttl', done)
local rest = redis.call('hlen', bodies) <= #ids and lifetime(meta, now)
redis.call('zadd', done, 'xx', 0, '') -- these two add nothing, and fail if those below would
redis.call('pexpire', done, left < longest and 2 * longest or left)
count(series, now, 'd', #ids)
redis.call('hset', receipts, unpack(numbers))
redis.call('zadd', done, unpack(forget))
if left < longest then
  redis.call('pexpire', done, 2 * longest)
  redis.call('pexpire', receipts, 2 * longest)
end
if rest and redis.call('pexpire', meta, rest) == 1 then
  redis.call('hset', meta, 'expires', 1)
end
local flew = redis.call('zrem', flight, unpack(members)) == #members
if not flew then
  redis.call('zrem', due, unpack(members))
  redis.call('zrem', dead, unpack(members))
end
redis.call('hdel', bodies, unpack(ids))
redis.call('hdel', claims, unpack(ids))
redis.call('hdel', errors, unpack(ids))
if groups then arrange(queue, members, now, nil, flew and 'gone') end
if groups then vacate(queue, missed, now) end
return reply
