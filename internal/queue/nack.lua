-- nack.lua: end attempts that failed: each message is due again later, or a dead letter.
--
-- KEYS[1]  due: sorted set, messages by the time at which they may be taken, µs
-- KEYS[2]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[3]  dead: sorted set, dead letters by the time of their death, µs
-- KEYS[4]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- KEYS[5]  errors: hash, id -> text of the last error
-- KEYS[6]  waiters: sorted set, clients that hear wake-ups
-- ARGV[1..n]  for each message: member, claim, delay in µs or -1 for the dead letters, attempts allowed or 0, text of the
--             error or nothing
--
-- Returns  an array: 1 if other clients wait for a wake-up, or 0; then for each message 1 if its attempt under this claim is
--          over, 0 if the claim is not its latest
local due, flight, dead, claims, errors, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local reply = {redis.call('exists', waiters)}
for i = 1, #ARGV, 5 do
  local member, claim, delay, limit = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local id = string.sub(member, 17)
  local held = redis.call('hget', claims, id) or ''
  local state, attempt = string.sub(held, 1, 1), string.sub(held, 18)
  local over = string.sub(held, 2, 17) == claim and 1 or 0
  if over == 1 and state == 'h' then
    if redis.call('zrem', flight, member) + redis.call('zrem', due, member) > 0 then
      if delay < 0 or limit > 0 and tonumber(attempt) >= limit then
        redis.call('zadd', dead, string.format('%.0f', now), member)
      else
        redis.call('zadd', due, string.format('%.0f', delay > 0 and now + delay + 1 or now), member)
      end
    end
    redis.call('hset', claims, id, 'n' .. claim .. attempt)
    if ARGV[i + 4] ~= '' then
      redis.call('hset', errors, id, ARGV[i + 4])
    elseif delay < 0 or limit > 0 and tonumber(attempt) >= limit then
      redis.call('hsetnx', errors, id, 'no attempts are left')
    end
  end
  reply[#reply + 1] = over
end
return reply
