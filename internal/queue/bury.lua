-- bury.lua: remove for good what is kept of messages beside their place. It stands after idle.lua.
--
-- Returns  nothing. It defines bury. It comes before a ZREM that is known to be allowed: an ACL may forbid any of its commands, and
--          each leaves the messages whole until the last. It publishes what there is to tell once the rest is known to be allowed.
local function bury(keys, ids)
  for _, hash in ipairs({keys.errors, keys.claims, keys.bodies}) do
    redis.call('hdel', hash, '') -- does nothing, and fails if it would later
  end
  local left = redis.call('hlen', keys.bodies) <= #ids and lifetime(keys.meta, keys.now)
  if left and redis.call('pexpire', keys.meta, left) == 1 then
    redis.call('hset', keys.meta, 'expires', 1)
  end
  for _, told in ipairs(keys.tell or {}) do redis.call('publish', told[1], told[2]) end
  for _, hash in ipairs({keys.errors, keys.claims, keys.bodies}) do
    redis.call('hdel', hash, unpack(ids))
  end
end

