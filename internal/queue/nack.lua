-- nack.lua: end attempts that failed, or that are put off: each message is due again later, or a dead letter; or put another message into
--           its place.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  claims: hash, id -> the latest claim, see states.md
-- KEYS[6]  errors: hash, id -> text of the last error
-- KEYS[7]  waiters: sorted set, clients that hear wake-ups
-- KEYS[8]  series: hash, see series.lua
-- KEYS[9]  bodies: hash, id -> body; this and what follows only if there are successors, or messages of groups
-- KEYS[10] groups: sorted set, see group.lua
-- KEYS[11] places: hash, see group.lua
-- ARGV[1]  prefix of the clients' channels
-- ARGV[2..n]  for each message: member, claim, delay in µs or -1 for the dead letters; attempts allowed, 0 for no limit, -1 for a snooze,
--             which counts no attempt, or -2 for a successor, and of a task a space and the client that waits for its end; text of the
--             error, a \1, the length of the attempt in µs, a space and the client, or nothing without an error; or the body of the
--             successor
--
-- Returns  an array: for each message 1 if its attempt under this claim is over, 2 if another message has replaced it, 0 if the claim is
--          not its latest, or something else than this has ended it
local meta, due, flight, dead, claims, errors, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local series, bodies, groups, places, channel, items = KEYS[8], KEYS[9], KEYS[10], KEYS[11], ARGV[1], ARGV

redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
redis.call('zadd', due, 'xx', 0, '') -- does nothing, and fails if ZADD would after the claims are noted
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
if groups then try(queue) end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply, failed, ended, missed, firsts, dies, fails, succeeds = {}, {}, {}, {}, {}, 0, 0, 0
for i = 2, #items, 5 do
  local member, claim, delay, limit, text, client = items[i], items[i + 1], tonumber(items[i + 2]), tonumber(items[i + 3]), items[i + 4], nil
  if not limit then
    limit, client = string.match(items[i + 3], '^(%S+) (%S+)$')
    limit = tonumber(limit)
  end
  local held = ended[member] or redis.call('hget', claims, string.sub(member, 17)) or ''
  local letter, number = string.match(held, '^(%a)' .. claim .. '(%d+)')
  local body = limit == -2 and text
  -- A successor is there if this has put it there: something else may have ended the attempt.
  if body and letter ~= 'h' and letter ~= 'r' and redis.call('hget', bodies, string.sub(member, 17)) ~= body then letter = nil end
  -- So with the others: a snooze is no failure, and what was to die is dead. Of a message that was replaced all are the same.
  if letter == 's' and limit ~= -1 or letter == 'n' and number ~= '0' and (limit == -1 or delay < 0 and not redis.call('zscore', dead, member)) then
    letter = nil
  end
  -- No attempts are what is left after this has made the new one due.
  reply[#reply + 1] = (letter == 'r' or letter == 'n' and number == '0') and 2 or letter and not (body and letter ~= 'h') and 1 or 0
  if letter == 'h' or letter == 'r' then
    local at = not (delay < 0 or limit > 0 and tonumber(number) >= limit) and (delay > 0 and now + delay + 1 or now)
    local snoozed = limit == -1
    local to, fresh = member, nil
    if body then
      number, text, to = 0, '', string.sub(body, 1, 16) .. string.sub(member, 17)
      fresh = {at, terms_of(body, 26)}
    elseif letter == 'r' then -- the message that has replaced it
      at, number, text, snoozed = math.max(tonumber(number), now), 0, '', false
      fresh = {at}
    end
    local state = snoozed and 's' .. claim .. (number - 1) or 'n' .. claim .. number
    ended[member] = state -- for another end of the same attempt in this call
    failed[#failed + 1] = {member = member, claim = claim, to = to, fresh = fresh, at = at, state = state, text = text, body = body, revived = snoozed or body}
    if at and not is_grouped(to) then note(firsts, task_of(to), at) end
    local alive = not at and not redis.call('zscore', dead, member) -- unless its last claim ran out
    dies, succeeds = dies + (alive and 1 or 0), succeeds + (body and 1 or 0)
    if alive and client then redis.call('publish', channel .. client .. ':ends', string.sub(member, 17)) end
    fails = fails + (letter == 'h' and not body and not snoozed and 1 or 0)
  else
    missed[#missed + 1] = {member, claim}
  end
end
if dies > 0 then freed(meta, channel, dies) end
wake_each(queue, firsts, now)
count(series, now, 'f', fails)
count(series, now, 'x', dies)
count(series, now, 'd', succeeds)
count(series, now, 'o', succeeds)
for _, m in ipairs(failed) do
  local id = string.sub(m.member, 17)
  if m.body then
    redis.call('hdel', errors, id)
    redis.call('hset', bodies, id, m.body)
  end
  local words, length, client = string.match(m.text, '^([^\1]+)\1(%d+) (.*)$')
  if words then
    tried(errors, id, words, m.claim, length, client)
  elseif not m.at then
    give_up(errors, id, nil, 'no attempts are left')
  end
  redis.call('hset', claims, id, m.state)
  local here = redis.call('zrem', flight, m.member) + redis.call('zrem', due, m.member) > 0
  if m.body then arrange(queue, {m.member}, now) end -- which may be of another group
  -- A snooze and a successor count for a dead letter too whose last claim ran out.
  local rises = not here and m.revived and redis.call('zrem', dead, m.member) > 0
  if here or rises then
    redis.call('zadd', m.at and due or dead, exact(m.at and score(m.to, m.at, now) or now), m.to)
  end
  -- A dead letter has left its group.
  if rises and not m.body and is_grouped(m.to) then m.fresh = {m.at, terms_of(redis.call('hget', bodies, id) or '', 26)} end
  arrange(queue, {m.to}, now, {[m.to] = m.fresh})
end
vacate(queue, missed, now)
return reply
