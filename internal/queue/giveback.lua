-- giveback.lua: return claims of messages that nobody began to work on, without counting the attempt.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  claims: hash, id -> the latest claim, see states.md
-- KEYS[5]  waiters: sorted set, clients that hear wake-ups
-- KEYS[6]  groups: sorted set, see group.lua
-- KEYS[7]  places: hash, see group.lua
-- KEYS[8]  none: never there, see states.md
-- KEYS[9]  the caller's last claim: its number, then member, claim and score of what it claimed, line by line; only if that
--          is to be returned
-- ARGV[1]  prefix of the clients' channels
-- ARGV[2]  number of the call whose claims are to be returned, and which must not claim any more; 0 for those that follow
-- ARGV[3]  a client that is not to look in, as it cannot work on them: the one that has waited longest does; nothing if any may;
--          only if KEYS[9] is not there
-- ARGV[4..n]  for each claim: member, number of the claim, its score or the time at which it is due, µs
--
-- Returns  the number of claims returned now
local meta, due, flight, claims, waiters, groups, places, _, record =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local channel, number, passer, items, first = ARGV[1], ARGV[2], ARGV[3], ARGV, 4

redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
if record then
  items, first = {}, 2
  for line in string.gmatch(redis.call('get', record) or '0', '[^\n]+') do
    items[#items + 1] = line
  end
  if tonumber(items[1]) < tonumber(number) then
    redis.call('set', record, number, 'px', 3600000)
  end
  if items[1] ~= number then
    return 0
  end
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local states, scores, members, missed, fresh, firsts, all = {}, {}, {}, {}, {}, {}, {}
for i = first, #items, 3 do
  local member, claim, at = items[i], items[i + 1], due_at(items[i + 2])
  local id = string.sub(member, 17)
  all[#all + 1] = member
  local held = redis.call('hget', claims, id) or ''
  local mine, number = string.match(held, '^([hr])' .. claim .. '(%d+)')
  if mine == 'r' then at, number = number, 1 end -- the message that has replaced it
  if mine and (redis.call('zscore', flight, member) or redis.call('zscore', due, member)) then
    states[#states + 1], states[#states + 2] = id, (mine == 'h' and string.sub(number, 1, 1) == '0' and 's' or 'n') .. claim .. (number - 1)
    scores[#scores + 1], scores[#scores + 2] = exact(score(member, at, now)), member
    members[#members + 1] = member
    fresh[member] = mine == 'r' and {at} or nil
    if not is_grouped(member) then note(firsts, task_of(member), tonumber(at)) end
  else
    missed[#missed + 1] = {member, claim}
  end
end
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
if some_grouped(all) then try(queue) end
vacate(queue, missed, now)
if #members == 0 then
  return 0
end
queue.oldest = passer and passer ~= ''
local listens = passer and redis.call('zscore', waiters, passer)
if listens then
  redis.call('zrem', waiters, passer)
end
wake_each(queue, firsts, now)
if listens then
  redis.call('zadd', waiters, listens, passer)
  redis.call('pexpire', waiters, 60000)
end
redis.call('zadd', due, 'xx', 0, '') -- does nothing, and fails if ZADD would after the claims are noted
redis.call('hset', claims, unpack(states))
redis.call('zadd', due, unpack(scores))
redis.call('zrem', flight, unpack(members))
arrange(queue, members, now, fresh)
return #members
