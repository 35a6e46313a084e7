-- doctor_grid.lua: which of some commands the user of this connection may not run. It changes nothing.
--
-- ARGV[1]  a name that no object has
-- ARGV[2]  commands, separated by blanks
--
-- Returns  the commands that are refused, for the user or for the name; nil where Redis cannot tell, before 7.0
local name, commands = ARGV[1], ARGV[2]

if not redis.acl_check_cmd then
  return nil
end
local refused = {}
for command in string.gmatch(commands, '%S+') do
  local known, may = pcall(redis.acl_check_cmd, command, name)
  if known and not may then
    table.insert(refused, command)
  end
end
return refused
