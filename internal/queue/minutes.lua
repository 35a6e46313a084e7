-- minutes.lua: return what was counted in each minute of the last hour.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  series: hash, see series.lua
-- ARGV[1]  the caller's version of the layout
--
-- Returns  an array: the current minute, since 1970; then for each of 60 minutes, of which that is the last, how many messages were offered
--          and acknowledged, how many attempts failed, how many messages became dead letters, and the greatest lateness of a claim, µs;
--          or one negative number, the layout's version, if it is higher than the caller's
local meta, series = KEYS[1], KEYS[2]
local layout = ARGV[1]

local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > tonumber(layout) then
  return {-version}
end
local time = redis.call('time')
local now = math.floor((time[1] * 1000000 + time[2]) / 60000000)
local all, counts, reply = redis.call('hgetall', series), {}, {now}
for i = 1, #all, 2 do
  counts[all[i]] = tonumber(all[i + 1])
end
for minute = now - 59, now do
  for letter in string.gmatch('odfxl', '.') do
    reply[#reply + 1] = counts[minute .. letter] or 0
  end
end
return reply
