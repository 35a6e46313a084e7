-- remove.lua: remove members of a set of members that expire.
--
-- KEYS[1]  the set: sorted set, see put.lua
-- ARGV[1..n]  the members
--
-- Returns  how many of them were there and not over
local key = KEYS[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local removed = 0
for _, member in ipairs(ARGV) do
  local expiry = redis.call('zscore', key, member)
  if expiry then
    redis.call('zrem', key, member)
    if tonumber(expiry) > now then
      removed = removed + 1
    end
  end
end
return removed
