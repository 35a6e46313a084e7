-- bury.lua: remove for good what is kept of messages beside their place. It stands before cancel.lua and purge.lua.
--
-- Returns  nothing. It defines bury, which stops at so many bytes of the bodies that it has to read, at one message at least, and
--          returns the number of messages that it has done with.
local function bury(keys, members, most)
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local ids, stamps, size, ends = {}, {}, 0, string.format('%.0f', now + 60000000)
  for i, member in ipairs(members) do
    local id = string.sub(member, 17)
    -- The offer of a young one may arrive once more, and must not bring it back. A sequence is a time, or later than that.
    if (tonumber(string.sub(member, 1, 16)) or 0) > now - 60000000 then
      local body = redis.call('hget', keys.bodies, id) or ''
      size = size + #body
      if i > 1 and size > most then
        break
      end
      stamps[#stamps + 1], stamps[#stamps + 2] = ends, string.sub(body, 17, 25) .. id
    end
    ids[i] = id
  end
  for _, hash in ipairs({keys.bodies, keys.claims, keys.errors}) do
    redis.call('hdel', hash, unpack(ids))
  end
  if #stamps > 0 then
    redis.call('zremrangebyscore', keys.gone, '-inf', string.format('%.0f', now))
    redis.call('zadd', keys.gone, unpack(stamps))
    redis.call('pexpire', keys.gone, 60000)
    redis.call('hset', keys.meta, 'gone', ends)
  end
  if redis.call('exists', keys.bodies) == 0 and redis.call('hexists', keys.meta, 'paused') == 0 then
    if redis.call('pexpire', keys.meta, 86400000) == 1 then
      redis.call('hset', keys.meta, 'expires', 1)
    end
  end
  return #ids
end

