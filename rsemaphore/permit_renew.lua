-- permit_renew.lua: set the lease of permits, of each that is out and has not expired, and not to less than it is.
--
-- KEYS[1..n]  the permits that are out, of each permit's semaphore: zsets, id -> end of the lease, epoch ms
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  id of each permit
--
-- Returns  an array of the positions, from 1 and rising, of the permits that are not out or have expired
local lease = tonumber(ARGV[1])

local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
local ends = math.ceil(now) + lease

local gone, written = {}, false
for i, out in ipairs(KEYS) do
  -- One key of another type must not stop the others: its error counts as not out.
  local present = redis.pcall('zscore', out, ARGV[i + 1])
  present = type(present) == 'string' and tonumber(present) or 0
  if present <= math.floor(now) then
    gone[#gone + 1] = i
  elseif present < ends then -- it may arrive late, after an extension has set a longer lease
    if not written then
      redis.call('zrem', out, '') -- removes nothing; after a script's first write a full memory refuses none
      written = true
    end
    redis.call('zadd', out, string.format('%.0f', ends), ARGV[i + 1])
  end
end
return gone
