-- bury.lua: remove for good what is kept of messages beside their place. It stands before cancel.lua and purge.lua.
--
-- Returns  nothing. It defines bury. It comes before a ZREM that is known to be allowed: an ACL may forbid any of its commands, and
--          each leaves the messages whole until the last.
local function bury(keys, ids)
  redis.call('hdel', keys.bodies, '') -- does nothing, and fails if it would later
  if redis.call('hlen', keys.bodies) <= #ids and redis.call('hexists', keys.meta, 'paused') == 0 then
    if redis.call('pexpire', keys.meta, 86400000) == 1 then
      redis.call('hset', keys.meta, 'expires', 1)
    end
  end
  for _, hash in ipairs({keys.errors, keys.claims, keys.bodies}) do
    redis.call('hdel', hash, unpack(ids))
  end
end

