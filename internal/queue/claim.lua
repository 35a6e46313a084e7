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
if tonumber(head[1] or 0) > layout then return {-tonumber(head[1]), 0} end
if tonumber(string.match(redis.call('get', record) or '0', '^%d+')) >= tonumber(number) then return {-1, 0} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
-- This frees memory and so comes first: a Redis that is full then lets the rest pass.
redis.call('zrem', waiters, client)
local expired = redis.call('zrangebyscore', flight, '-inf', stamp, 'withscores', 'limit', 0, 100)
for i = 1, #expired, 2 do
  redis.call('zadd', due, expired[i + 1], expired[i])
  redis.call('zrem', flight, expired[i])
end
local ready, ids = {}, {}
if wanted > 0 and not head[3] then
  ready = redis.call('zrangebyscore', due, '-inf', stamp, 'withscores', 'limit', 0, wanted)
end
for i = 1, #ready, 2 do
  ids[#ids + 1] = string.sub(ready[i], 17)
end
local states = #ids > 0 and redis.call('hmget', claims, unpack(ids)) or {}
local reply, lines, taken, flying, held, size = {0, 0}, {number}, {}, {}, {}, 0
local last, ends = math.max(tonumber(head[2] or 0), now), string.format('%.0f', now + visibility)
for n, id in ipairs(ids) do
  local member, at, attempt = ready[2 * n - 1], ready[2 * n], 1 + (tonumber(string.sub(states[n] or '', 18)) or 0)
  if limit > 0 and attempt > limit then
    redis.call('hsetnx', errors, id, 'no attempt ended within the visibility')
    redis.call('zadd', dead, stamp, member)
    redis.call('zrem', due, member)
    reply[1] = 1
  else
    local body = redis.call('hget', bodies, id) or ''
    size = size + #body
    if #taken > 0 and size > most then
      reply[1] = 1
      break
    end
    last = last + 1
    local claim, r, l = string.format('%016.0f', last), #reply, #lines
    taken[#taken + 1] = member
    flying[#flying + 1], flying[#flying + 2] = ends, member
    held[#held + 1], held[#held + 2] = id, 'h' .. claim .. attempt
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = member, claim, attempt, at, body
    lines[l + 1], lines[l + 2], lines[l + 3] = member, claim, at
  end
end
if #taken > 0 then
  redis.call('zrem', due, unpack(taken))
  redis.call('zadd', flight, unpack(flying))
  redis.call('hset', claims, unpack(held))
  redis.call('hset', meta, 'layout', layout, 'last', string.format('%.0f', last))
  redis.call('set', record, table.concat(lines, '\n'), 'px', 3600000)
end
reply[2] = redis.call('exists', waiters)
return reply
