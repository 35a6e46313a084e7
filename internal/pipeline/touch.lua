-- touch.lua: write to a key without changing it. WAIT and WAITAOF look at what their connection wrote last. On Valkey that is
-- an older write if the call before them wrote nothing.
--
-- KEYS[1]  any key, which may be missing
--
-- Returns  1
local key = KEYS[1]

local left = redis.call('pttl', key)
if left == -2 then
  redis.call('set', key, '')
  redis.call('del', key)
elseif left == -1 then
  redis.call('persist', key) -- it changes nothing; a user that may not run it must not leave a TTL
  redis.call('pexpire', key, 60000)
  redis.call('persist', key)
else
  redis.call('pexpire', key, math.max(left, 1))
end
return 1
