-- extend.lua: set the visibility of claimed messages anew.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- ARGV[1]  1 if a claim may end sooner than before, or 0
-- ARGV[2..n]  for each message: member, claim, visibility from now on in µs
--
-- Returns  an array: for each message 1 if the claim is its latest and lives on, 0 if not
local due, flight, claims = KEYS[1], KEYS[2], KEYS[3]
local sooner, items = ARGV[1], ARGV

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply = {}
for i = 2, #items, 3 do
  local member, held = items[i], redis.call('hget', claims, string.sub(items[i], 17)) or ''
  local alive = 0
  if string.sub(held, 1, 17) == 'h' .. items[i + 1] then
    -- One whose claim ran out stands in due again, and is taken back if nobody else claimed it. Removing comes first: a
    -- Redis that is full refuses to add otherwise.
    local back, ends = redis.call('zrem', due, member) == 1, now + tonumber(items[i + 2])
    local stood = not back and redis.call('zscore', flight, member)
    if back or stood and (sooner == '1' or tonumber(stood) < ends) then
      redis.call('zadd', flight, string.format('%.0f', ends), member)
    end
    alive = (back or stood) and 1 or 0
  end
  reply[#reply + 1] = alive
end
return reply
