-- put.lua: add a member to a set of members that expire, or set another expiry. Removes some that are over.
--
-- KEYS[1]  the set: sorted set, member -> expiry, ms since the epoch
-- ARGV[1]  the member
-- ARGV[2]  time to live, ms
-- ARGV[3]  add, unless it is there; renew, if it is there
--
-- Returns  1 if that was done, 0 if not
local key = KEYS[1]
local member, ttl, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = redis.call('zscore', key, member)
local there = expiry and tonumber(expiry) > now or false
local done = there == (mode == 'renew')
local over = mode == 'add' and redis.call('zrangebyscore', key, '-inf', now, 'limit', 0, 100) or {}
for i = #over, 1, -1 do
  if over[i] == member then table.remove(over, i) end
end
if done then
  redis.call('zadd', key, now + ttl, member)
end
if #over > 0 then
  redis.pcall('zrem', key, unpack(over)) -- the member is there: that a user may not remove others is no error
end
return done and 1 or 0
