-- list.lua: look at a page of the messages in one sorted set.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  the sorted set: due, flight or dead
-- KEYS[3]  bodies: hash, id -> sequence (16 bytes), stamp (9), payload
-- KEYS[4]  claims: hash, id -> the latest claim, see states.md
-- KEYS[5]  errors: hash, id -> text of the last error
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  1 for those whose time has come, 0 for those whose time has not, -1 for all
-- ARGV[3]  score of the message after which to begin, or nothing
-- ARGV[4]  its member
-- ARGV[5]  messages wanted
-- ARGV[6]  bytes of bodies after which to stop
--
-- Returns  an array: 1 if there may be more, or 0; then for each message its member, score, attempts, error and body; or one
--          negative number, the layout's version, if it is higher than the caller's
local meta, set, bodies, claims, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local layout, passed, score, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local wanted, most = tonumber(ARGV[5]), tonumber(ARGV[6])

local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > tonumber(layout) then
  return {-version}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
-- Ranks, as a range of scores with an offset would be counted through. After one that is gone, those of the same time may come again.
local found, lane = {}, next_lane(set, score == '' and exact(removed + width) or exact(lane_of(tonumber(score))))
while lane and #found < 2 * wanted do
  local due = redis.call('zcount', set, '-inf', exact(split(lane, now)))
  local start = passed == '0' and due or redis.call('zcount', set, '-inf', '(' .. exact(lane))
  local stop = passed == '1' and due or redis.call('zcount', set, '-inf', lane < 0 and '(' .. exact(lane + width) or '+inf')
  if score ~= '' and lane == lane_of(tonumber(score)) then
    local rank = redis.call('zrank', set, member)
    start = math.max(start, rank and rank + 1 or redis.call('zcount', set, '-inf', '(' .. score))
  end
  stop = math.min(stop, start + wanted - #found / 2)
  for _, value in ipairs(stop > start and redis.call('zrange', set, start, stop - 1, 'withscores') or {}) do found[#found + 1] = value end
  lane = lane < 0 and next_lane(set, exact(lane + width))
end
local reply, size = {#found == 2 * wanted and 1 or 0}, 0
for i = 1, #found, 2 do
  local id = string.sub(found[i], 17)
  local body = redis.call('hget', bodies, id) or ''
  size = size + #body
  if i > 1 and size > most then
    reply[1] = 1
    break
  end
  local attempts = tonumber(string.match(redis.call('hget', claims, id) or '', '^[^r]' .. string.rep('%d', 16) .. '(%d+)') or '') or 0
  for _, part in ipairs({found[i], found[i + 1], attempts, redis.call('hget', errors, id) or '', body}) do
    reply[#reply + 1] = part
  end
end
return reply
