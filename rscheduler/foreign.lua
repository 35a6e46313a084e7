-- foreign.lua: say whether the keys of a scheduler are of a layout that this library does not read. It stands before other scripts.
--
-- Returns  nothing. It defines foreign, which returns the version of such a layout, and else nothing. Version 1 had none in meta.
local function foreign(meta)
  local head = redis.call('hmget', meta, 'layout', 'up')
  local version = tonumber(head[1] or head[2] and 1 or 2)
  return version ~= 2 and version or nil
end
