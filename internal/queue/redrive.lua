-- redrive.lua: make dead letters due again, as if they had never been tried.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[6]  claims: hash, id -> latest claim
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  waiters: sorted set, clients that hear wake-ups
-- KEYS[9]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[10] groups: sorted set, see group.lua
-- KEYS[11] places: hash, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
-- ARGV[4]  id, or nothing for up to 100 that died until then
-- ARGV[5]  the time until when, µs; 0 for now
--
-- Returns  an array: how many are due again; the time until when; or as once.lua says
local meta, record, due, dead, bodies, claims, errors, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local flight, groups, places = KEYS[9], KEYS[10], KEYS[11]
local layout, channel, number, id, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

redis.call('zrem', due, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local stamp = string.format('%.0f', now)
  limit = limit == '0' and stamp or limit
  local members
  if id == '' then
    members = redis.call('zrangebyscore', dead, '-inf', limit, 'limit', 0, 100)
  else
    members = {string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id}
    if not redis.call('zscore', dead, members[1]) then
      return {0, limit}
    end
  end
  local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places}
  if #members > 0 then
    if some_grouped(members) then try(queue) end
    wake(queue, now, now)
  end
  redis.call('zadd', due, 'xx', 0, '') -- does nothing, and fails if ZADD would after the attempts are forgotten
  for _, member in ipairs(members) do
    redis.call('hdel', claims, string.sub(member, 17))
    redis.call('hdel', errors, string.sub(member, 17))
    redis.call('zadd', due, exact(score(member, now, now)), member)
    redis.call('zrem', dead, member)
    if is_grouped(member) then
      arrange(queue, {member}, now, {[member] = {now, terms_of(redis.call('hget', bodies, string.sub(member, 17)) or '', 26)}})
    end
  end
  return {#members, limit}
end)
