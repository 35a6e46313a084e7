-- doctor_grid.lua: which of some commands the user of this connection may not run. It changes nothing.
--
-- ARGV[1]  a name that no object has
-- ARGV[2]  commands, separated by blanks
--
-- Returns  an array, or nil where Redis cannot tell, before 7.0
--          all if every command is refused, as it is for a name that the user may not use, or some; the commands that are refused
local name, commands = ARGV[1], ARGV[2]

if not redis.acl_check_cmd then
  return nil
end
local refused, may_some = {}, false
for command in string.gmatch(commands, '%S+') do
  local known, may = pcall(redis.acl_check_cmd, command, name)
  if known and not may then
    table.insert(refused, command)
  end
  may_some = may_some or known and may and command ~= 'time' -- which takes no name
end
return { may_some and 'some' or 'all', unpack(refused) }
