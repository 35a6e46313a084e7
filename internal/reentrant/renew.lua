-- renew.lua: set the lease of locks, each if its owner holds it and not to less than it is.
--
-- KEYS[1..n]  the locks: hashes, owner -> levels
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  owner of each lock
--
-- Returns  an array of the positions, from 1 and rising, of the locks that their owners do not hold
local lease = ARGV[1]

local gone = {}
for i, lock in ipairs(KEYS) do
  -- One key of another type must not stop the others: its error counts as not held.
  if redis.pcall('hexists', lock, ARGV[i + 1]) == 1 then
    -- It may arrive late, after a nested level or an extension has set a longer lease.
    if redis.call('pttl', lock) < tonumber(lease) then
      redis.call('pexpire', lock, lease)
    end
  else
    gone[#gone + 1] = i
  end
end
return gone
