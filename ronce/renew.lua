-- renew.lua: set the lease of claims, each if its owner has it and not to less than it is.
--
-- KEYS[1..n]  the keys, see claim.lua
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  owner of each claim
--
-- Returns  an array of the positions, from 1 and rising, of the claims that their owners do not have
local lease = ARGV[1]

local gone = {}
for i, key in ipairs(KEYS) do
  -- One key of another type must not stop the others: its error is no owner.
  if redis.pcall('hget', key, 'owner') == ARGV[i + 1] and redis.call('hexists', key, 'kept') == 0 then
    if redis.call('pttl', key) < tonumber(lease) then
      redis.call('pexpire', key, lease)
    end
  else
    gone[#gone + 1] = i
  end
end
return gone
