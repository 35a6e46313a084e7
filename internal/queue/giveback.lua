-- giveback.lua: return claims of messages that nobody began to work on, without counting the attempt.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- KEYS[4]  waiters: sorted set, clients that hear wake-ups
-- KEYS[5]  the caller's last call: its number, then member, claim and due time of what it claimed, line by line
-- ARGV[1]  number of the call whose claims are to be returned, and which must not claim any more; 0 for those that follow
-- ARGV[2..n]  for each claim: member, number of the claim, due time
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; the number of claims returned now
local due, flight, claims, waiters, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number = ARGV[1]

local items = {}
if number == '0' then
  items = ARGV
else
  for line in string.gmatch(redis.call('get', record) or '0', '[^\n]+') do
    items[#items + 1] = line
  end
  if tonumber(items[1]) > tonumber(number) then
    return {0, 0}
  end
  if items[1] ~= number then
    items = {}
  end
  redis.call('del', record) -- a Redis that is full takes the next command only after one that frees memory
  redis.call('set', record, number, 'px', 3600000)
end
local returned = 0
for i = 2, #items, 3 do
  local member, claim, at = items[i], items[i + 1], items[i + 2]
  local id = string.sub(member, 17)
  local held = redis.call('hget', claims, id) or ''
  if string.sub(held, 1, 17) == 'h' .. claim and redis.call('zrem', flight, member) + redis.call('zrem', due, member) > 0 then
    redis.call('zadd', due, at, member)
    redis.call('hset', claims, id, 'n' .. claim .. (tonumber(string.sub(held, 18)) - 1))
    returned = returned + 1
  end
end
return {redis.call('exists', waiters), returned}
