-- renew.lua: prolong claims of messages in flight. None ends sooner for it, since it may arrive later than extend.lua.
--
-- KEYS[1]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[2]  claims: hash, id -> the latest claim, see states.md; not while the keys move
--          to another node of a cluster, one by one: nobody can claim anything then
-- ARGV[1..n]  for each message: member, claim, visibility from now on in µs
--
-- Returns  an array: for each message 1 if its claim lives on, 0 if another one is its latest, 2 if it is not in flight, 3 if it is gone
local flight, claims = KEYS[1], KEYS[2]

redis.call('zrem', flight, '') -- a full Redis allows this write, and then the rest of the script
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply = {}
for i = 1, #ARGV, 3 do
  local member, claim, ends = ARGV[i], ARGV[i + 1], now + tonumber(ARGV[i + 2])
  local held = claims and (redis.call('hget', claims, string.sub(member, 17)) or '')
  local before = redis.call('zscore', flight, member)
  if before and tonumber(before) < ends and (not held or string.match(held, '^[hr]' .. claim)) then
    redis.call('zadd', flight, string.format('%.0f', ends), member)
  end
  reply[#reply + 1] = held and not string.match(held, '^[hr]' .. claim) and (held == '' and 3 or 0) or before and 1 or 2
end
return reply
