-- offer.lua: put messages into the queue, unless their ids are taken, and have a client look in when the earliest is due.
--
-- KEYS[1]  meta: hash; expires is there while the key has a time to live, as that of an empty queue has
-- KEYS[2]  due: sorted set, sequence and id by the time at which it may be taken, µs
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes), mark (9), payload
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- KEYS[5]  the caller's last call of this kind: string, its number and reply
-- KEYS[6]  done: sorted set, ids that are remembered after their Ack, by the time at which they are forgotten, µs; only if some ids
--          are users' own, which may be taken
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
-- ARGV[4]  the mark of all messages, which says whose their ids are; nothing if each has one before its payload
-- ARGV[5..n]  for each message: id, delay in µs or @ and a time in µs, payload
--
-- Returns  an array: for each message 1 if this offer put it there, or 0; or as once.lua says
local meta, due, bodies, waiters, record, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local layout, channel, number, mark, items = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV

local head = redis.call('hmget', meta, 'layout', 'last', 'expires')
return once({version = head[1] or 0, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local last = math.max(tonumber(head[2] or 0), now)
  -- A hundred messages are to take well under a millisecond: so the loop counts, and formats only what changes.
  local format, taken, kept, reply, scores, fields, size = string.format, {}, {}, {}, {}, {}, 0
  if done then
    local ids = {}
    for i = 5, #items, 3 do ids[#ids + 1] = items[i] end
    taken, kept = redis.call('hmget', bodies, unpack(ids)), redis.call('zmscore', done, unpack(ids))
  end
  local new, earliest, delay, at, score, millions = {}
  for i = 1, (#items - 4) / 3 do
    local id, pause, body = items[3 * i + 2], items[3 * i + 3], items[3 * i + 4]
    reply[i] = 0
    if not new[id] and not taken[i] and not (kept[i] and tonumber(kept[i]) > now) then
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
      scores[size + 1], scores[size + 2] = score, sequence .. id
      fields[size + 1], fields[size + 2] = id, sequence .. mark .. body
      new[id], reply[i], size = true, 1, size + 2
    end
  end
  if size == 0 then return reply end
  -- What may fail comes before the bodies; this does nothing, and fails if ZADD would after them.
  redis.call('zadd', due, 'xx', 0, '')
  if head[3] then
    redis.call('persist', meta)
    redis.call('hdel', meta, 'expires')
  end
  wake({meta = meta, waiters = waiters, channel = channel}, earliest, now)
  redis.call('hset', bodies, unpack(fields))
  redis.call('zadd', due, unpack(scores))
  redis.call('hset', meta, 'last', format('%.0f', last), 'layout', layout)
  return reply
end)
