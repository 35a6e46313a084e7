-- renew.lua: set the lease of holders of one mode, each if it holds its lock and not to less than it is.
--
-- KEYS[1..n]  the locks: hashes, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[n+1..2n]  for readers, the first level of each: string, which lives as long as the level
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  field of each holder
--
-- Returns  an array of the positions, from 1 and rising, of the locks that their owners do not hold
local lease = tonumber(ARGV[1])
local n = #ARGV - 1

-- It may arrive late, after a nested level or an extension has set a longer lease. A full Redis allows PEXPIRE, but not SET.
local function extend(key)
  local left = redis.call('pttl', key)
  if left ~= -2 and left < lease then
    redis.call('pexpire', key, lease)
  end
  return left ~= -2
end

local gone = {}
for k = 1, n do
  local lock, level, field = KEYS[k], KEYS[n + k], ARGV[k + 1]
  -- One key of another type must not stop the others: its error, a table, counts as not held.
  local held = redis.pcall('hget', lock, field)
  held = type(held) == 'string' and tonumber(held)
  if held and (not level or extend(level)) then
    for i = 2, level and held or 0 do
      -- The wire format numbers the levels. In a slot on the move one of them may be elsewhere; the first one keeps the lock.
      pcall(extend, level:sub(1, -2) .. i)
    end
    extend(lock)
  else
    gone[#gone + 1] = k
  end
end
return gone
