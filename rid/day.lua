-- day.lua: take a block of the counter of a day.
--
-- KEYS[1]  the generator: string, '<second> <counter>', that of the last block, in s since 1970, and the counter after it
-- ARGV[1]  how many ids
-- ARGV[2]  how many there are for a day
-- ARGV[3]  the second of the last block that the client has had, 0 for none
-- ARGV[4]  the counter after it
--
-- Returns  an array: how many ids the block has, 0 if the day has no more; their second; the first counter; µs that are
--          left of the server's second
local generator = KEYS[1]
local count, all, second, counter = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- The second never falls, and the counter only with a new day: a clock that was set back waits for itself.
local function rise(to, taken)
  local days = math.floor(to / 86400) - math.floor(second / 86400)
  if days > 0 then
    counter = taken
  elseif days == 0 then
    counter = math.max(counter, taken)
  end
  second = math.max(second, to)
end

local last = redis.call('get', generator)
local time = redis.call('time')
local now, left = tonumber(time[1]), 1000000 - time[2]
if last then
  local to, taken = string.match(last, '^(%d+) (%d+)$')
  if not to then
    return redis.error_reply('WRONGTYPE the key holds no second and counter')
  end
  rise(tonumber(to), tonumber(taken))
  rise(now, 0)
else
  rise(now + 1, 0) -- it may have been lost within this second
end
count = math.min(count, all - counter)
if count < 1 then
  return { 0, second, counter, left }
end
redis.call('set', generator, string.format('%.0f %.0f', second, counter + count))
return { count, second, counter, left }
