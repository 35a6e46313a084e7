-- remove.lua: delete the value of a bucket if it is the one that is expected.
--
-- KEYS[1]  the bucket: string
-- ARGV[1]  the value
--
-- Returns  1 if it was deleted, 0 if not
local key = KEYS[1]
local value = ARGV[1]

if redis.call('get', key) ~= value then
  return 0
end
return redis.call('unlink', key)
