-- take.lua: take tokens if the rate allows it now, reserve them for a later moment, or only look.
--
-- KEYS[1]  the state: string, '<µs>', the moment at which all tokens are back, by the server's clock; or '<µs> <parts> <count>'
--          if that moment has a rest, in parts, of which a µs has count
-- ARGV[1]  count: tokens that come back in one period, the parts of a µs
-- ARGV[2]  how long the tokens to take need to come back, whole µs
-- ARGV[3]  how long all tokens need, whole µs
-- ARGV[4]  longest wait, µs; 0 takes nothing that is not there now, negative for any; empty takes and writes nothing
-- ARGV[5]  the rest of ARGV[2], parts; missing, with ARGV[6], if both rests are 0
-- ARGV[6]  the rest of ARGV[3], parts
--
-- Returns  an array: 1 if the tokens were taken, 0 if not; µs until they are there; µs until all tokens are back; when
--          they are back, µs of the server's clock; the rest that both have, parts, unless it is 0
local key = KEYS[1]
local count, cost, all = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0 -- faster than tonumber
local longest, costRest, allRest = tonumber(ARGV[4]), (ARGV[5] or 0) + 0, (ARGV[6] or 0) + 0

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local used, rest = 0, 0
local state = redis.call('get', key)
if state then
  local back, parts, of = tonumber(state), 0, count
  if not back then
    back, parts, of = string.match(state, '^(%d+) (%d+) (%d+)$')
    if not back then
      return redis.error_reply('WRONGTYPE the key holds no state of a rate limiter')
    end
    parts = parts + 0
  end
  used, rest = back - now, parts
  if rest > 0 and tonumber(of) ~= count then -- another rate has written it: round up
    used, rest = used + 1, 0
  end
  if used < 0 then
    used, rest = 0, 0
  end
end

local after, afterRest = used + cost, rest + costRest
if afterRest >= count then
  after, afterRest = after + 1, afterRest - count
end
local wait = after - all
if afterRest > allRest then
  wait = wait + 1
end
if wait < 0 then
  wait = 0
end
if not longest or longest >= 0 and wait > longest then
  return { 0, wait, used, now + used, rest > 0 and rest or nil }
end
local back = now + after
if afterRest > 0 then
  state = string.format('%.0f %.0f %.0f', back, afterRest, count)
else
  state = string.format('%.0f', back) -- tostring, and redis.call of Redis 7.2.0, would round
end
redis.call('set', key, state, 'px', (after - after % 1000) / 1000 + 1) -- below 1e14, which is not rounded
return { 1, wait, after, back, afterRest > 0 and afterRest or nil }
