-- guard.lua: refuse a call whose key holds another kind of value, or whose fencing token is below one that was seen. It is
-- put before the scripts that need it.
--
-- Returns  nothing: it declares guard(key, kind, fence, token, keep), which returns nil, or an error reply. kind is what TYPE
--          says of the object. token '' is no token; else it is kept in the key fence, for keep ms, 0 for ever.

-- Tokens are compared as texts: a double would lose digits.
local function guard(key, kind, fence, token, keep)
  local found = redis.call('type', key)['ok']
  if found ~= kind and found ~= 'none' then
    return redis.error_reply('WRONGTYPE Operation against a key holding the wrong kind of value')
  end
  if token == '' then
    return nil
  end
  local seen = redis.call('get', fence) or ''
  if #token < #seen or #token == #seen and token < seen then
    return redis.error_reply('FENCED token ' .. token .. ' is below ' .. seen)
  end
  if keep == '0' then
    redis.call('set', fence, token)
  else
    redis.call('set', fence, token, 'px', keep)
  end
  return nil
end
