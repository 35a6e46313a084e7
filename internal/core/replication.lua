-- replication.lua: tell with which history of writes a server goes on. It changes nothing.
--
-- KEYS[1]  a key that the server has, for the way there
--
-- Returns  the replication id and the one before it, see INFO; an empty array if the server does not tell
local _ = KEYS[1]
local info = redis.pcall('info', 'replication')
if type(info) ~= 'string' then
  return {}
end
return { string.match(info, 'master_replid:(%w+)'), string.match(info, 'master_replid2:(%w+)') }
