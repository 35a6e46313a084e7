-- entry.lua: what the scripts of a cache share. It is put before those that need it.
--
-- Returns  nothing: it declares now, ms since the epoch; look(key), which returns the fields of a key but data, see claim.lua,
--          times as numbers, 0 if they are missing; and expire(key, e, ...), which sets the expiry of the key to when nothing of e
--          is needed any more. If that is refused it removes the fields whose names follow, and returns the error.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function look(key)
  local f = redis.call('hmget', key, 'kept', 'over', 'stale', 'owner', 'lease', 'keep', 'at', 'error', 'made')
  local e = {
    kept = f[1], over = tonumber(f[2] or 0), stale = tonumber(f[3] or 0),
    owner = f[4], lease = tonumber(f[5] or 0), keep = f[6], at = tonumber(f[7] or 0), error = f[8], made = f[9],
  }
  e.there = e.kept and e.over > now
  e.claimed = e.owner and e.lease > now
  return e
end

-- The text of a failure stays for those who waited for it, and hear of its end late.
local function expire(key, e, ...)
  local done = redis.pcall('pexpireat', key, math.max(e.over, e.lease, e.at + 5000))
  if type(done) == 'table' and done.err then
    redis.call('hdel', key, ...)
    return done
  end
end
