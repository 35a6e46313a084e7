-- beat.lua: note that a client works on tasks.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  bodies: hash, id -> body
-- ARGV[1]  the caller's version of the layout
-- ARGV[2..n]  names of tasks
--
-- Returns  an array: 0 if all tasks have a number, 5 if there are too many; or one negative number, the layout's version, if it is higher
--          than the caller's
local meta, bodies, layout, names = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV

redis.call('hdel', meta, '') -- a full Redis allows this write, and then the rest of the script
local version = tonumber(redis.call('hget', meta, 'layout') or 0)
if version > layout then return {-version} end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local tasks, fields = {}, {}
for i = 2, #names do
  if not numbered(meta, 'a:' .. names[i], tasks) then return {5} end
  fields[#fields + 1], fields[#fields + 2] = 's:' .. names[i], string.format('%.0f', now)
end
local rest = redis.call('hlen', bodies) == 0 and lifetime(meta, now)
redis.call('hset', meta, 'layout', layout, unpack(fields))
if #tasks > 0 then redis.call('hset', meta, unpack(tasks)) end
if rest and redis.call('pexpire', meta, rest) == 1 then redis.call('hset', meta, 'expires', 1) end
return {0}
