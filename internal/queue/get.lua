-- get.lua: look at one message.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[6]  claims: hash, id -> the latest claim, see states.md
-- KEYS[7]  errors: hash, id -> text of the last error
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  id
--
-- Returns  an array: nothing if there is none; otherwise 0 delayed, 1 ready, 2 in flight, 3 dead; member, score, attempts,
--          error, body; or one negative number, the layout's version, if it is higher than the caller's
local meta, due, flight, dead, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local layout, id = ARGV[1], ARGV[2]

local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > tonumber(layout) then
  return {-version}
end
local body = redis.call('hget', bodies, id)
if not body then
  return {}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local member = string.sub(body, 1, 16) .. id
local score, state = redis.call('zscore', due, member), 0
score = score and due_at(score)
if score and score <= now then
  state = 1
elseif not score then
  score, state = redis.call('zscore', flight, member), 2
  if score and tonumber(score) <= now then
    state = 1
  end
end
if not score then
  score, state = redis.call('zscore', dead, member), 3
end
local attempts = tonumber(string.match(redis.call('hget', claims, id) or '', '^[^r]' .. string.rep('%d', 16) .. '(%d+)') or '') or 0
return {state, member, exact(score or 0), attempts, redis.call('hget', errors, id) or '', body}
