-- take.lua: take tokens if the rate allows it now, reserve them for a later moment, or only look.
--
-- KEYS[1]  the state: string, '<µs>', the moment at which all tokens are back, by the server's clock; or '<µs> <parts> <count>'
--          if that moment has a rest, in parts, of which a µs has count
-- ARGV[1]  count: tokens that come back in one period, the parts of a µs
-- ARGV[2]  how long the tokens to take need to come back, whole µs
-- ARGV[3]  the rest of that, parts
-- ARGV[4]  how long all tokens need, whole µs
-- ARGV[5]  the rest of that, parts
-- ARGV[6]  longest wait, µs; 0 takes nothing that is not there now, negative for any; empty takes and writes nothing
--
-- Returns  an array: 1 if the tokens were taken, 0 if not; µs until they are there; µs until all tokens are back, and the
--          rest of that in parts; when they are back, µs of the server's clock, without that rest
local key = KEYS[1]
local count, cost, costRest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local all, allRest, longest = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local used, rest = 0, 0
local state = redis.call('get', key)
if state then
  local back, parts, of = tonumber(state), 0, count
  if not back then
    back, parts, of = string.match(state, '^(%d+) (%d+) (%d+)$')
  end
  if not back then
    return redis.error_reply('WRONGTYPE the key holds no state of a rate limiter')
  end
  used, rest = back - now, tonumber(parts)
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
wait = math.max(wait, 0)
if not longest or longest >= 0 and wait > longest then
  return { 0, wait, used, rest, now + used }
end
local back = now + after
if afterRest > 0 then
  state = string.format('%.0f %.0f %.0f', back, afterRest, count)
else
  state = string.format('%.0f', back) -- tostring, and redis.call of Redis 7.2.0, would round
end
redis.call('set', key, state, 'px', math.ceil((after + 1) / 1000)) -- below 1e14, which is not rounded
return { 1, wait, after, afterRest, back }
