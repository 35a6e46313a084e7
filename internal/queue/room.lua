-- room.lua: notify producers that wait for room in a queue with a capacity. It stands before the scripts that make room.
--
-- Returns  nothing. It defines freed, which notifies all of them if an offer was refused since it did so last. It comes before what the
--          script writes: an ACL may forbid to publish.
local function freed(meta, channel)
  if redis.call('hexists', meta, 'full') == 1 then
    redis.call('publish', channel .. 'room', '')
    redis.call('hdel', meta, 'full')
  end
end

