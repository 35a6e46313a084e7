-- extend.lua: set the visibility of claimed messages anew.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- ARGV[1..n]  for each message: member, claim, visibility from now on in µs
--
-- Returns  an array: for each message 1 if the claim is its latest and lives on, 0 if not
local due, flight, claims = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply = {}
for i = 1, #ARGV, 3 do
  local member, held = ARGV[i], redis.call('hget', claims, string.sub(ARGV[i], 17)) or ''
  local alive = 0
  if string.sub(held, 1, 17) == 'h' .. ARGV[i + 1] then
    -- One whose claim ran out stands in due again, and is taken back if nobody else claimed it.
    if redis.call('zscore', flight, member) or redis.call('zrem', due, member) == 1 then
      redis.call('zadd', flight, string.format('%.0f', now + tonumber(ARGV[i + 2])), member)
      alive = 1
    end
  end
  reply[#reply + 1] = alive
end
return reply
