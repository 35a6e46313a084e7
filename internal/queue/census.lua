-- census.lua: count messages by task.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set of messages
-- ARGV[1]  the caller's version of the layout
--
-- Returns  an array: for each task its name, how many of its messages are delayed, how many are ready, and for how long nobody has been seen
--          who works on it, µs, or -1; or one negative number, the layout's version, if it is higher than the caller's
local meta, due, layout = KEYS[1], KEYS[2], tonumber(ARGV[1])

local fields, reply, at = redis.call('hgetall', meta), {}, {}
local seen, names = {}, {}
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^([st]):(.*)$')
  if kind == 's' then seen[name] = fields[i + 1] elseif kind == 't' then names[#names + 1], at[tonumber(fields[i + 1])] = name, #names + 1 end
  if fields[i] == 'layout' and tonumber(fields[i + 1]) > layout then return {-tonumber(fields[i + 1])} end
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
for i, name in ipairs(names) do
  local r = 4 * i - 4
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = name, 0, 0, seen[name] and now - seen[name] or -1
end
local lane = next_lane(due, exact(removed + width))
while lane and lane < 0 do
  local n, last = at[task_in(lane)], split(lane, now)
  if n then
    local ready, all = redis.call('zcount', due, exact(lane), exact(last)), redis.call('zcount', due, exact(lane), exact(lane + width - 1))
    reply[4 * n - 1], reply[4 * n - 2] = reply[4 * n - 1] + ready, reply[4 * n - 2] + all - ready
  end
  lane = next_lane(due, exact(lane + width))
end
return reply
