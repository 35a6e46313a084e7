-- hash.lua: read what is kept of a scheduler and of a job. It stands before the other scripts.
--
-- Returns  nothing. It defines foreign, which returns the version of the keys if this library does not read it, and else nothing, from layout
--          and up of meta: version 1 had no layout there; fields, which returns the fields of a job; forget, which deletes those of a run; and change, which
--          notes that a definition was changed, and returns when: later than the change before it.
local function foreign(head)
  local version = tonumber(head[1] or head[2] and 1 or 2)
  return version ~= 2 and version or nil
end

local function fields(job)
  local all, hash = redis.call('hgetall', job), {}
  for i = 1, #all, 2 do hash[all[i]] = all[i + 1] end
  return hash
end

local function forget(job, slot)
  redis.call('hdel', job, 'state' .. slot, 'claim' .. slot, 'attempt' .. slot, 'started' .. slot, 'client' .. slot, 'token' .. slot)
end

local function change(meta, now)
  local changed = string.format('%.0f', math.max(now, (redis.call('hget', meta, 'changed') or 0) + 1))
  redis.call('hset', meta, 'layout', 2, 'changed', changed)
  return changed
end
