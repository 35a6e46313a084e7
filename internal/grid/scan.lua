-- scan.lua: read a step of a collection, on the master.
--
-- KEYS[1]  the object
-- ARGV[1]  hscan, sscan or zscan
-- ARGV[2]  cursor
-- ARGV[3]  about how many elements
--
-- Returns  an array
--          the next cursor, and an array of elements, as the command has it
local key = KEYS[1]
local command, cursor, count = ARGV[1], ARGV[2], ARGV[3]

if command == 'hscan' then
  return redis.call('hscan', key, cursor, 'count', count)
elseif command == 'sscan' then
  return redis.call('sscan', key, cursor, 'count', count)
end
return redis.call('zscan', key, cursor, 'count', count)
