-- offer.lua: put messages into the queue, unless their ids are taken, and have a client look in when the earliest is due.
--
-- KEYS[1]  meta: hash; expires is there while the key has a time to live, as that of an empty queue has
-- KEYS[2]  due: sorted set, sequence and id by the time at which it may be taken, µs
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes), mark (9), header, payload
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- KEYS[5]  the caller's last call of this kind: string, its number and reply
-- KEYS[6]  series: hash, see series.lua
-- KEYS[7]  done: sorted set, ids that are remembered after their Ack, by the time at which they are forgotten, µs; this and what follows
--          only if some ids are users' own, which may be taken, or the queue has a capacity, or a message is of a group
-- KEYS[8]  dead: sorted set of dead letters
-- KEYS[9]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[10] claims: hash, id -> the latest claim, see states.md
-- KEYS[11] errors: hash, id -> text of the last error
-- KEYS[12] groups: sorted set, see group.lua
-- KEYS[13] places: hash, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  number of the call
-- ARGV[4]  the mark of all messages, which says whose their ids are; nothing if each has one before its payload
-- ARGV[5]  capacity: how many messages may be delayed, ready or in flight; 0 for no limit
-- ARGV[6]  1 if there has to be room for all messages, or none is taken
-- ARGV[7..n]  for each message: id; delay in µs or @ and a time in µs, after an r if it replaces one of its id, and before a space and
--          bytes 15 and 16 of its member unless it is plain, see lanes.lua, or byte 15, a colon and its task; header and payload
--
-- Returns  an array: for each message 1 if this offer put it there, 2 if in the place of another, 3 if a dead letter has its id, 4 if there
--          is no room for it, 5 if there are too many tasks, or 0; or as once.lua says
local meta, due, bodies, waiters, record, series, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local dead, flight, claims, errors, groups, places = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local layout, channel, number, mark, capacity, whole, items = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV

local queue = {meta = meta, due = due, bodies = bodies, waiters = waiters, channel = channel}
queue.dead, queue.flight, queue.claims, queue.errors, queue.done, queue.groups, queue.places = dead, flight, claims, errors, done, groups, places
local head = redis.call('hmget', meta, 'layout', 'last', 'expires')
return once({version = head[1] or 0, layout = layout, record = record, number = number}, function()
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local before = math.max(tonumber(head[2] or 0), now)
  -- A hundred messages are to take well under a millisecond: so the loop counts, and formats only what changes.
  local format, taken, kept, reply, scores, fields, size = string.format, {}, {}, {}, {}, {}, 0
  local ids, last = {}, before
  for i = 7, done and #items or 0, 3 do ids[#ids + 1] = items[i] end
  if done then taken, kept = redis.call('hmget', bodies, unpack(ids)), redis.call('zmscore', done, unpack(ids)) end
  local new, waiting, flying, forgotten, grouped, fresh, tasks, firsts, delay = {}, {}, {}, {}, {}, {}, {}, {}, ''
  local at, stands, marker, millions, replaces
  local room = capacity > 0 and capacity - redis.call('hlen', bodies) + redis.call('zcard', dead) or math.huge
  for i = 1, (#items - 6) / 3 do
    local id, pause, body = items[3 * i + 4], items[3 * i + 5], items[3 * i + 6]
    if pause ~= delay then
      delay, replaces, at, marker = pause, terms(pause, now)
      if #marker > 2 then marker = numbered(meta, marker, tasks) end
      stands = marker and exact(score('00000000000000' .. marker, at, now))
    end
    local place, adds, waits, flies = new[id], false
    reply[i] = marker and 0 or 5
    if not marker then
    elseif place then
      reply[i] = replaces and 2 or 0
    elseif taken[i] then
      reply[i], waits, flies = judge(queue, id, taken[i], mark .. body, exact(at), replaces, now)
      adds, waiting[#waiting + 1], flying[#flying + 1] = waits ~= nil, waits, flies
    elseif replaces or not (kept[i] and tonumber(kept[i]) > now) then
      room = room - 1
      adds = room >= 0 or whole == '1'
      reply[i] = adds and 1 or 4
      if adds and kept[i] then forgotten[#forgotten + 1] = id end
    end
    if adds or place and replaces then
      last, place = last + 1, place or size + 1
      new[id], size = place, math.max(size, place + 1)
      local rest = last % 1000000
      if rest == 0 or not millions then millions = format('%010.0f', (last - rest) / 1000000) end
      local sequence = millions .. format('%06d', rest)
      if marker ~= '' then sequence, tasks.laned = format('%014x', last) .. marker, true end
      scores[place], scores[place + 1], fields[place], fields[place + 1] = stands, sequence .. id, id, sequence .. mark .. body
      if marker == '' or not is_grouped(sequence) then
        note(firsts, marker ~= '' and task_of(sequence), at)
      else
        grouped[#grouped + 1], fresh[sequence .. id] = sequence .. id, {at, terms_of(body, mark == '' and 10 or 1)}
      end
    end
  end
  if room < 0 then refused(meta, whole == '1' and -room or 1) end
  local none = room < 0 and whole == '1'
  for i = 1, none and #reply or 0 do reply[i] = 4 end
  if none or size == 0 and #flying == 0 then return reply end
  -- What may fail comes before the bodies; these do nothing, and fail if those below would.
  redis.call('zadd', due, 'xx', 0, '')
  if #waiting + #flying > 0 then prepare(queue, layout) end
  if #grouped > 0 or some_grouped(waiting) then try(queue) end
  if head[3] then
    redis.call('persist', meta)
    redis.call('hdel', meta, 'expires')
  end
  wake_each(queue, firsts, now)
  count(series, now, 'o', last - before + #flying)
  replace(queue, waiting, flying)
  forget(queue, forgotten, now)
  if size > 0 then
    redis.call('hset', bodies, unpack(fields))
    redis.call('zadd', due, unpack(scores))
  end
  arrange(queue, waiting, now)
  arrange(queue, grouped, now, fresh)
  if tasks.laned then tasks[#tasks + 1], tasks[#tasks + 2] = 'lanes', 1 end
  redis.call('hset', meta, 'last', format('%.0f', last), 'layout', layout, unpack(tasks))
  return reply
end)
