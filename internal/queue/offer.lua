-- offer.lua: put messages into the queue, unless their ids are taken.
--
-- KEYS[1]  meta: hash; expires is there while the key has a time to live, as that of an empty queue has; gone is the time, µs,
--          until which there is something in the set of this name
-- KEYS[2]  due: sorted set, sequence and id by the time at which it may be taken, µs
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[4]  done: sorted set, ids that are remembered after their Ack, by the time at which they are forgotten, µs
-- KEYS[5]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- KEYS[6]  gone: sorted set, stamp and id of offers that must not act any more, by the time at which they are forgotten, µs
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  the stamp of all messages, whose ids then differ from each other; nothing if each has one before its payload
-- ARGV[3..n]  for each message: id, delay in µs or @ and a time in µs, payload. A stamp is the same when the offer is sent again.
--
-- Returns  an array of one negative number, the layout's version, if it is higher than the caller's; otherwise 1 if a waiter
--          should be woken, or 0; then for each message 1 if this offer put it there, or 0
local meta, due, bodies, done, waiters, gone = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, stamp, items = tonumber(ARGV[1]), ARGV[2], ARGV

local head = redis.call('hmget', meta, 'layout', 'last', 'alarm_at', 'expires', 'gone')
if tonumber(head[1] or 0) > layout then return {-tonumber(head[1])} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local last, alarm = math.max(tonumber(head[2] or 0), now), tonumber(head[3] or 0)
-- A hundred messages are to take well under a millisecond: so the loops count, and format only what changes.
local format, ids, reply, scores, fields, new, n, size = string.format, {}, {0}, {}, {}, {}, 0, 0
for i = 3, #items, 3 do
  n = n + 1
  ids[n] = items[i]
end
local bodied, kept = redis.call('hmget', bodies, unpack(ids)), redis.call('zmscore', done, unpack(ids))
local removed = tonumber(head[5] or 0) > now and lookup(gone, stamp, items, n) or {}
local earliest, delay, at, score, millions
for i = 1, n do
  local id, pause, body = ids[i], items[3 * i + 1], items[3 * i + 2]
  local old = new[id] or bodied[i] or removed[i]
  if old then
    reply[i + 1] = string.sub(old, 17, 25) == string.sub(stamp .. body, 1, 9) and 1 or 0
  elseif kept[i] and tonumber(kept[i]) > now then
    reply[i + 1] = 0
  else
    if pause ~= delay then
      delay, at = pause, tonumber(pause) or tonumber(string.sub(pause, 2)) - now - 1
      at = at > 0 and now + at + 1 or now
      score, earliest = format('%.0f', at), math.min(earliest or at, at)
    end
    last = last + 1
    local rest = last % 1000000
    if rest == 0 or not millions then
      millions = format('%010.0f', (last - rest) / 1000000)
    end
    local sequence = millions .. format('%06d', rest)
    body = sequence .. stamp .. body
    if stamp == '' then
      new[id] = body
    end
    scores[size + 1], scores[size + 2] = score, sequence .. id
    fields[size + 1], fields[size + 2] = id, body
    reply[i + 1], size = 1, size + 2
  end
end
if size == 0 then
  return reply
end
redis.call('zadd', due, unpack(scores))
redis.call('hset', bodies, unpack(fields))
redis.call('hset', meta, 'last', format('%.0f', last))
if head[4] or not head[1] then
  redis.call('persist', meta)
  redis.call('hdel', meta, 'expires')
  redis.call('hset', meta, 'layout', layout)
end
if (alarm < now or alarm > earliest) and redis.call('exists', waiters) == 1 then
  reply[1] = 1
end
return reply
