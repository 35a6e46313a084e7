-- renew.lua: set the lease of holders of one mode, each if it holds its lock and not to less than it is.
--
-- KEYS[1..n]  the locks: hashes, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[n+1..2n]  for readers, what the keys of each lock's readers begin with: strings, one for each level
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  field of each holder
--
-- Returns  an array of the positions, from 1 and rising, of the locks that their owners do not hold
local lease = tonumber(ARGV[1])
local n = #ARGV - 1
local reading = #KEYS > n

local gone = {}
for k = 1, n do
  local lock, field = KEYS[k], ARGV[k + 1]
  -- One key of another type must not stop the others: its error, a table, counts as not held.
  local held = redis.pcall('hget', lock, field)
  held = type(held) == 'string' and tonumber(held)
  if held then
    -- It may arrive late, after a nested level or an extension has set a longer lease.
    for i = 1, reading and held or 0 do
      -- The wire format builds the keys of levels from the owner's field.
      local level = KEYS[n + k] .. field .. ':rwlock_timeout:' .. i
      if redis.call('pttl', level) < lease then
        redis.call('set', level, '1', 'px', lease)
      end
    end
    if redis.call('pttl', lock) < lease then
      redis.call('pexpire', lock, lease)
    end
  else
    gone[#gone + 1] = k
  end
end
return gone
