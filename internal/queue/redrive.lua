-- redrive.lua: make dead letters due again, as if they had never been tried.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes) and more
-- KEYS[6]  claims: hash, id -> latest claim
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  id, or nothing for up to 100 that died until then
-- ARGV[5]  the time until when, µs; 0 for now
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; how many are due again; the time until when; or as once.lua
--          says
local meta, record, due, dead, bodies, claims, errors, waiters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local layout, number, floor, id, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  local time = redis.call('time')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  if limit == '0' then
    limit = now
  end
  local members
  if id == '' then
    members = redis.call('zrangebyscore', dead, '-inf', limit, 'limit', 0, 100)
  else
    members = {string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id}
    if not redis.call('zscore', dead, members[1]) then
      return {0, 0, limit}
    end
  end
  for _, member in ipairs(members) do
    redis.call('zrem', dead, member)
    redis.call('zadd', due, now, member)
    redis.call('hdel', claims, string.sub(member, 17))
    redis.call('hdel', errors, string.sub(member, 17))
  end
  return {redis.call('exists', waiters), #members, limit}
end)
