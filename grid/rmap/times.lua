-- times.lua: whether the server has times to live of entries: Redis from 7.4 on, Valkey from 9 on. It is put before the scripts that need
-- it.
--
-- Returns  nothing: it declares has_times(). To try a command and fail would count as an error of the server.
local function has_times()
  return (redis.REDIS_VERSION_NUM or 0) >= 0x070400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x090000
end
