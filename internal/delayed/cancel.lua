-- cancel.lua: remove a message that nobody works on. Its id is free at once.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the caller's calls: sorted set, number and reply by number; floor by the number below which none acts any more
-- KEYS[3]  due: sorted set of messages
-- KEYS[4]  dead: sorted set of dead letters
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[6]  claims: hash, id -> latest claim
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  gone: sorted set, stamp and id of offers that must not act any more, by the time at which they are forgotten, µs
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  number of the call
-- ARGV[3]  the least number of a call that the caller waits for
-- ARGV[4]  id
--
-- Returns  an array: 1 if it was removed, 0 if it is in flight or there is none of this id; or as once.lua says
local meta, record, due, dead, bodies, claims, errors, gone =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local layout, number, floor, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

return once({meta = meta, layout = layout, record = record, number = number, floor = floor}, function()
  local member = string.sub(redis.call('hget', bodies, id) or '', 1, 16) .. id
  if redis.call('zrem', due, member) + redis.call('zrem', dead, member) == 0 then
    return {0}
  end
  bury({meta = meta, bodies = bodies, claims = claims, errors = errors, gone = gone}, {member}, 0)
  return {1}
end)
