-- offer.lua: put messages into the queue, unless their ids are taken.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, sequence and id by the time at which it may be taken, µs
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[4]  done: sorted set, ids that are remembered after their Ack, by the time at which they are forgotten, µs
-- KEYS[5]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- ARGV[1]  the caller's version of the layout
-- ARGV[2..n]  for each message: id, stamp (the same when the offer is sent again), delay in µs, payload
--
-- Returns  an array of one negative number, the layout's version, if it is higher than the caller's; otherwise 1 if a waiter
--          should be woken, or 0; then for each message 1 if this offer put it there, or 0
local meta, due, bodies, done, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local layout = tonumber(ARGV[1])

local head = redis.call('hmget', meta, 'layout', 'last', 'alarm_at')
if tonumber(head[1] or 0) > layout then
  return {-tonumber(head[1])}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local last = math.max(tonumber(head[2] or 0), now)
local ids, reply, scores, fields, new = {}, {0}, {}, {}, {}
for i = 2, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
end
local bodied = redis.call('hmget', bodies, unpack(ids))
local kept = redis.call('zmscore', done, unpack(ids))
local earliest
for n, id in ipairs(ids) do
  local stamp, delay, body = ARGV[4 * n - 1], tonumber(ARGV[4 * n]), ARGV[4 * n + 1]
  local old, added = new[id] or bodied[n], 0
  if old then
    added = string.sub(old, 17, 25) == stamp and 1 or 0
  elseif tonumber(kept[n] or 0) <= now then
    last, added = last + 1, 1
    local at = delay > 0 and now + delay + 1 or now
    local sequence = string.format('%016.0f', last)
    new[id] = sequence .. stamp
    scores[#scores + 1], scores[#scores + 2] = string.format('%.0f', at), sequence .. id
    fields[#fields + 1], fields[#fields + 2] = id, new[id] .. body
    earliest = math.min(earliest or at, at)
  end
  reply[#reply + 1] = added
end
if not earliest then
  return reply
end
redis.call('zadd', due, unpack(scores))
redis.call('hset', bodies, unpack(fields))
redis.call('hset', meta, 'layout', layout, 'last', string.format('%.0f', last))
redis.call('persist', meta)
local alarm = tonumber(head[3] or 0)
if redis.call('exists', waiters) == 1 and (alarm < now or alarm > earliest) then
  reply[1] = 1
end
return reply
