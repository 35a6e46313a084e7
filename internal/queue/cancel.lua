-- cancel.lua: remove a message that nobody has claimed, or whose claim ran out. Its id is free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  due: sorted set of messages
-- KEYS[4]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[5]  dead: sorted set of dead letters
-- KEYS[6]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[7]  claims: hash, id -> latest claim
-- KEYS[8]  errors: hash, id -> text of the last error
-- KEYS[9]  gone: sorted set, stamp and id of offers that must not act any more, by the time at which they are forgotten, µs
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  id
--
-- Returns  an array: 1 if it was removed, 0 if it is in flight or there is none of this id; or as once.lua says
local meta, record, due, flight, dead, bodies, claims, errors, gone =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local layout, number, floor, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
  if redis.call('zrem', due, member) + redis.call('zrem', dead, member) == 0 then
    local ends, time = redis.call('zscore', flight, member), redis.call('time')
    if not ends or tonumber(ends) > time[1] * 1000000 + time[2] then
      return {0}
    end
    redis.call('zrem', flight, member)
  end
  bury({meta = meta, bodies = bodies, claims = claims, errors = errors, gone = gone}, {member}, 0)
  return {1}
end)
