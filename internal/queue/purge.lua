-- purge.lua: remove up to 100 messages of one sorted set for good. Their ids are free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  the sorted set: due, flight or dead
-- KEYS[4]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[5]  claims: hash, id -> latest claim
-- KEYS[6]  errors: hash, id -> text of the last error
-- KEYS[7]  gone: sorted set, stamp and id of offers that must not act any more, by the time at which they are forgotten, µs
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  1 for those whose time has come, 0 for those whose time has not, -1 for all
-- ARGV[5]  bytes of bodies after which to stop
--
-- Returns  an array: the number of messages removed; 1 if there may be more, or 0; or as once.lua says
local meta, record, set, bodies, claims, errors, gone = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local layout, number, floor, passed, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  local time = redis.call('time')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  local least, last = '-inf', '+inf'
  if passed == '1' then
    last = now
  elseif passed == '0' then
    least = '(' .. now
  end
  local members = redis.call('zrangebyscore', set, least, last, 'limit', 0, 100)
  if #members == 0 then
    return {0, 0}
  end
  local n = bury({meta = meta, bodies = bodies, claims = claims, errors = errors, gone = gone}, members, most)
  redis.call('zrem', set, unpack(members, 1, n))
  return {n, (n < #members or n == 100) and 1 or 0}
end)
