-- purge.lua: remove up to 100 messages of one sorted set for good. Their ids are free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's last call of this kind: string, its number and reply
-- KEYS[3]  the sorted set: due, flight or dead
-- KEYS[4]  bodies: hash, id -> body
-- KEYS[5]  claims: hash, id -> latest claim
-- KEYS[6]  errors: hash, id -> text of the last error
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  1 for those whose time has come, 0 for those whose time has not, -1 for all
-- ARGV[4]  prefix of the clients' channels
--
-- Returns  an array: the number of messages removed, of which 100 say that there may be more; or as once.lua says
local meta, record, set, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, number, passed, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('zrem', set, '') -- a full Redis allows this write, and then the rest of the script
return once({meta = meta, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  local least, last = '-inf', '+inf'
  if passed == '1' then
    last = now
  elseif passed == '0' then
    least = '(' .. now
  end
  local members, ids = redis.call('zrangebyscore', set, least, last, 'limit', 0, 100), {}
  for i, member in ipairs(members) do
    ids[i] = string.sub(member, 17)
  end
  if #members > 0 then
    freed(meta, channel, #members)
    bury({meta = meta, bodies = bodies, claims = claims, errors = errors, now = now}, ids)
    redis.call('zrem', set, unpack(members))
  end
  return {#members}
end)
