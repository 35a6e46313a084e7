-- look.lua: say what became of tasks. One that was not begun in time becomes a dead letter.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[5]  bodies: hash, id -> body
-- KEYS[6]  claims: hash, id -> the latest claim, see states.md
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  done: sorted set, ids by the time at which they are forgotten, µs
-- KEYS[9]  receipts: hash, id in done -> as ack.lua says
-- KEYS[10] series: hash, see series.lua
-- KEYS[11] waiters: sorted set, clients that hear wake-ups
-- KEYS[12] groups: sorted set, see group.lua
-- KEYS[13] places: hash, see group.lua
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  prefix of the clients' channels
-- ARGV[3]  bytes of results after which to stop
-- ARGV[4..n]  ids
--
-- Returns  an array: for each id 0 delayed, 1 ready, 2 in flight, 3 dead, 4 done, 5 cancelled, 6 dead since this call, -1 if there is none;
--          its attempts; its task; its error, or its result. It ends where the results are too many; or one negative number, the layout's
--          version, if it is higher than the caller's
local meta, due, flight, dead, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local done, receipts, series, waiters, groups, places = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local layout, channel, most, asked = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV

local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > layout then return {-version} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local queue = {meta = meta, due = due, flight = flight, waiters = waiters, channel = channel, groups = groups, places = places, series = series}

local function kept(id)
  local ends = tonumber(redis.call('zscore', done, id) or 0)
  return ends > now and redis.call('hget', receipts, id)
end

local function place_of(member)
  local score = redis.call('zscore', due, member)
  if score then return due_at(score) <= now and 1 or 0, due_at(score) end
  score = tonumber(redis.call('zscore', flight, member))
  if score then return score <= now and 1 or 2, nil end
  return 3, nil
end

local reply, size = {}, 0
for i = 4, #asked do
  local id, r = asked[i], #reply
  local body, state, attempts, task, text = redis.call('hget', bodies, id), -1, 0, '', ''
  local record = not body and kept(id)
  local cancelled = not body and not record and kept('\1' .. id)
  if body then
    local member, own, at = string.sub(body, 1, 16) .. id, string.match(body, '^[^\n]*', 26), nil
    local latest = redis.call('hget', claims, id) or ''
    state, at = place_of(member)
    attempts = tonumber(string.match(latest, '^%a' .. string.rep('%d', 16) .. '(%d+)') or '') or 0
    task = task_terms(body)
    local expiry = tonumber(string.match(string.match(own, '^[^gT]*'), 'e(%d+)') or '')
    if at and expiry and attempts == 0 and string.sub(latest, 1, 1) ~= 's' and at + expiry < now then
      redis.call('zrem', due, '') -- a full Redis allows this write, and then the rest of the script
      if is_grouped(member) then try(queue) end
      freed(meta, channel, 1)
      exhaust(queue, dead, errors, {{member = member, attempts = 0, why = 'expired'}}, exact(now), {}, now)
      state = 6
    end
    text = string.match(redis.call('hget', errors, id) or '', '^[^\1]*')
  elseif record then
    state, task, text = 4, string.match(record, '^%d+ (%S+) ?(.*)$')
  elseif cancelled then
    state, task = 5, cancelled
  end
  size = size + #(text or '')
  if i > 4 and size > most and state ~= 6 then break end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = state, attempts, task or '', text or ''
end
return reply
