-- probe.lua: which of the rights that scripts need the user of this connection lacks. It changes nothing.
--
-- KEYS[1]  a name that no object has
-- ARGV[1]  channel of a lock of that name
-- ARGV[2]  commands that take a key, separated by blanks
-- ARGV[3]  commands that take a channel
-- ARGV[4]  commands that take neither
--
-- Returns  the commands that are refused; none where Redis cannot tell, before 7.0, or refuses the key itself
local key, channel, commands, messaging, others = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if not redis.acl_check_cmd then
  return {}
end
local refused, allowed = {}, false
for command in string.gmatch(commands, '%S+') do
  if redis.acl_check_cmd(command, key) then
    allowed = true
  else
    table.insert(refused, command)
  end
end
if not allowed then
  return {}
end
for command in string.gmatch(messaging, '%S+') do
  local known, may = pcall(redis.acl_check_cmd, command, channel)
  if not known then
    table.insert(refused, command .. ', which the server does not know')
  elseif not may then
    table.insert(refused, command .. ' ' .. channel)
  end
end
for command in string.gmatch(others, '%S+') do
  if not redis.acl_check_cmd(command, '1', '1', '1') then
    table.insert(refused, command)
  end
end
return refused
