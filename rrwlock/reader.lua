-- reader.lua: how long a reader lives. It stands before the other scripts of this package that look at readers.
--
-- Returns  nothing. It defines remaining, which returns for how many ms the longest level of a reader lives, -1 for ever, -2 if it
--          is dead, or the error that kept it from looking.
local function remaining(lock, readers, field, levels)
  local longest = -2
  for i = 1, tonumber(levels) or 0 do
    -- The wire format builds the keys of levels from the owner's field.
    local level = readers .. field .. ':rwlock_timeout:' .. i
    local left = redis.pcall('pttl', level)
    if left == -2 then
      -- In a slot that is being imported a key may be missing because it has not been moved yet: then Redis refuses a look at
      -- two keys. A reader that was taken for dead would lose its lock.
      left = redis.pcall('exists', lock, level)
      left = type(left) == 'table' and left or -2
    end
    if type(left) == 'table' then
      return left
    end
    longest = math.max(longest, left)
  end
  return longest
end
