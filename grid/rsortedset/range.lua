-- range.lua: read a range of ranks, if it is not too long for a script: that takes several times as long as the command alone.
--
-- KEYS[1]  the sorted set
-- ARGV[1]  the first rank, negative from the end
-- ARGV[2]  the last rank, negative from the end
-- ARGV[3]  how many members it may have
-- ARGV[4]  asc, or desc for ranks from the greatest score on
--
-- Returns  an array
--          number of members, then each and its score; the number alone if it is above ARGV[3]
local key = KEYS[1]
local from, to, most, order = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local length = redis.call('zcard', key)
local first = math.max(from < 0 and from + length or from, 0)
local last = math.min(to < 0 and to + length or to, length - 1)
local reply = { math.max(last - first + 1, 0) }
if reply[1] == 0 or reply[1] > most then
  return reply
end
local members
if order == 'desc' then
  members = redis.call('zrevrange', key, first, last, 'withscores')
else
  members = redis.call('zrange', key, first, last, 'withscores')
end
for _, value in ipairs(members) do
  reply[#reply + 1] = value
end
return reply
