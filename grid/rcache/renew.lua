-- renew.lua: set the lease of claims, each if its owner has it and not to less than it is.
--
-- KEYS[1..n]  the keys, see claim.lua
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  owner of each claim
--
-- Returns  an array of the positions, from 1 and rising, of the claims that their owners do not have
local lease = tonumber(ARGV[1])

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone = {}
for i, key in ipairs(KEYS) do
  -- One key of another type must not stop the others: its error is no owner.
  local f = redis.pcall('hmget', key, 'owner', 'lease')
  if f[1] == ARGV[i + 1] then
    -- The expiry comes first: a full Redis refuses HSET as the first write of a script only.
    redis.call('pexpire', key, math.max(redis.call('pttl', key), lease))
    redis.call('hset', key, 'lease', math.max(now + lease, tonumber(f[2])))
  else
    gone[#gone + 1] = i
  end
end
return gone
