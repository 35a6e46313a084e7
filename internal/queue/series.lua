-- series.lua: count what happens in each minute. It stands before the scripts that do so.
--
-- series is a hash. Its fields are a minute, since 1970, and a letter: o for messages that were offered, d for those that were acknowledged,
-- f for attempts that failed, x for messages that became dead letters; and l for the greatest lateness of a claim, µs.
--
-- Returns  nothing. It defines count, which counts n of a letter, and late, which notes how late a claim is, µs. The first of a minute
--          removes what is older than an hour, and has the key live for two. They come before what the script writes: an ACL may forbid
--          any of their commands.
local function begin(series, minute)
  local old = {''} -- without an old one it does nothing
  for i, field in ipairs(redis.call('hgetall', series)) do
    if i % 2 == 1 and tonumber(string.match(field, '^%d+') or 0) < minute - 59 then old[#old + 1] = field end
  end
  redis.call('hdel', series, unpack(old))
  redis.call('pexpire', series, 7200000)
end

local function count(series, now, letter, n)
  if n == 0 then return end
  local minute = math.floor(now / 60000000)
  if redis.call('hincrby', series, minute .. letter, n) == n then begin(series, minute) end
end

local function late(series, now, lateness)
  local minute = math.floor(now / 60000000)
  local most = redis.call('hget', series, minute .. 'l')
  if most and tonumber(most) >= lateness then return end
  redis.call('hset', series, minute .. 'l', string.format('%.0f', lateness))
  if not most then begin(series, minute) end
end

