-- claim.lua: take back claims that ran out, then claim what is due.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> body
-- KEYS[6]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  waiters: sorted set, clients that hear wake-ups, by the time until which they do, µs
-- KEYS[9]  the caller's last call: its number, then member, claim and due time of what it claimed, line by line
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  messages wanted
-- ARGV[3]  visibility, µs
-- ARGV[4]  attempts allowed, 0 for no limit
-- ARGV[5]  the caller: a client's id
-- ARGV[6]  number of this call, higher than those before
-- ARGV[7]  bytes of bodies after which to stop
--
-- Returns  an array: 0, 1 if more may be due than was looked at, -1 if the call was settled before, or -v for a layout of the
--          higher version v; 1 if other clients wait for a wake-up, or 0; then for each message its member, claim, attempt,
--          due time and body
local meta, due, flight, dead, bodies, claims, errors, waiters, record =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local layout, wanted, visibility, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local client, number, most = ARGV[5], ARGV[6], tonumber(ARGV[7])

local head = redis.call('hmget', meta, 'layout', 'last', 'paused')
if tonumber(head[1] or 0) > layout then
  return {-tonumber(head[1]), 0}
end
if tonumber(string.match(redis.call('get', record) or '0', '^%d+')) >= tonumber(number) then
  return {-1, 0}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local expired = redis.call('zrangebyscore', flight, '-inf', stamp, 'withscores', 'limit', 0, 100)
for i = 1, #expired, 2 do
  redis.call('zadd', due, expired[i + 1], expired[i])
  redis.call('zrem', flight, expired[i])
end
local ready = {}
if wanted > 0 and not head[3] then
  ready = redis.call('zrangebyscore', due, '-inf', stamp, 'withscores', 'limit', 0, wanted)
end
local reply, lines, size, last = {0, 0}, {number}, 0, math.max(tonumber(head[2] or 0), now)
for i = 1, #ready, 2 do
  local member, id = ready[i], string.sub(ready[i], 17)
  local attempt = 1 + (tonumber(string.sub(redis.call('hget', claims, id) or '', 18)) or 0)
  local body = redis.call('hget', bodies, id) or ''
  size = size + #body
  if #lines > 1 and size > most then
    reply[1] = 1
    break
  end
  redis.call('zrem', due, member)
  if limit > 0 and attempt > limit then
    redis.call('zadd', dead, stamp, member)
    reply[1] = 1
    redis.call('hsetnx', errors, id, 'no attempt ended within the visibility')
  else
    last = last + 1
    local claim = string.format('%016.0f', last)
    redis.call('zadd', flight, string.format('%.0f', now + visibility), member)
    redis.call('hset', claims, id, 'h' .. claim .. attempt)
    for _, part in ipairs({member, claim, attempt, ready[i + 1], body}) do reply[#reply + 1] = part end
    for _, part in ipairs({member, claim, ready[i + 1]}) do lines[#lines + 1] = part end
  end
end
if #lines > 1 then
  redis.call('hset', meta, 'layout', layout, 'last', string.format('%.0f', last))
  redis.call('set', record, table.concat(lines, '\n'), 'px', 3600000)
end
redis.call('zrem', waiters, client)
reply[2] = redis.call('exists', waiters)
return reply
