-- remove.lua: remove the first members of a range of scores.
--
-- KEYS[1]  the sorted set
-- ARGV[1]  the least score
-- ARGV[2]  the greatest
-- ARGV[3]  how many members at most
--
-- Returns  how many were removed
local key = KEYS[1]
local least, most, count = ARGV[1], ARGV[2], ARGV[3]

local members = redis.call('zrangebyscore', key, least, most, 'limit', 0, count)
if #members == 0 then
  return 0
end
return redis.call('zrem', key, unpack(members))
