-- census.lua: count messages by task.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set of messages
-- KEYS[3]  flight: sorted set, claimed messages by the time at which the claim runs out, µs
-- KEYS[4]  dead: sorted set of dead letters
-- ARGV[1]  the caller's version of the layout
-- ARGV[2]  how many claims and dead letters, the newest, were looked at by the calls before
-- ARGV[3]  how many to look at now
-- ARGV[4]  the lane to begin with, see lanes.lua; nothing in the first call, and end if all were counted
-- ARGV[5]  how many lanes to count
--
-- Returns  an array: 1 if there are more claims or dead letters to look at, or 0; the lane for the next call, or end; and for each task
--          its name, how many of its messages are delayed, ready, in flight and dead, and for how long nobody has been seen who works on
--          it, µs, or -1; or one negative number, the layout's version, if it is higher than the caller's
local meta, due, flight, dead, layout = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[1])
local from, most, lane, lanes = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local fields, reply, at = redis.call('hgetall', meta), {0, 'end'}, {}
local seen, names = {}, {}
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^([st]):(.*)$')
  if kind == 's' then seen[name] = fields[i + 1] elseif kind == 't' then names[#names + 1], at[tonumber(fields[i + 1])] = name, 6 * #names + 3 end
  if fields[i] == 'layout' and tonumber(fields[i + 1]) > layout then return {-tonumber(fields[i + 1])} end
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
for i, name in ipairs(names) do
  local r = 6 * i - 3
  for field = 1, 4 do reply[r + field] = 0 end
  reply[r], reply[r + 5] = name, seen[name] and now - seen[name] or -1
end
local function add(task, field, n)
  local r = at[task]
  if r then reply[r + field] = reply[r + field] + n end
end
lane = lane ~= 'end' and next_lane(due, lane == '' and exact(removed + width) or lane)
while lane and lane < 0 and lanes > 0 do
  local last = split(lane, now)
  local ready, all = redis.call('zcount', due, exact(lane), exact(last)), redis.call('zcount', due, exact(lane), exact(lane + width - 1))
  add(task_in(lane), 2, ready)
  add(task_in(lane), 1, all - ready)
  lanes, lane = lanes - 1, next_lane(due, exact(lane + width))
end
if lane and lane < 0 then reply[2] = exact(lane) end
local held = redis.call('zcard', flight) - redis.call('zcount', flight, '-inf', exact(now)) -- the claims of the others have run out
for i, member in ipairs(redis.call('zrevrange', flight, from, from + most - 1)) do add(task_of(member), from + i > held and 2 or 3, 1) end
for _, member in ipairs(redis.call('zrevrange', dead, from, from + most - 1)) do add(task_of(member), 4, 1) end
if math.max(redis.call('zcard', flight), redis.call('zcard', dead)) > from + most then reply[1] = 1 end
return reply
