-- gone.lua: recognise offers of messages that somebody took away. It stands before offer.lua.
--
-- Returns  nothing. It defines lookup, which returns for each of n items false, or the beginning of a body as its message had.
local function lookup(gone, stamp, items, n)
  local marks, found = {}, {}
  for i = 1, n do
    marks[i] = string.sub(stamp .. items[3 * i + 2], 1, 9) .. items[3 * i]
  end
  for i, score in ipairs(redis.call('zmscore', gone, unpack(marks))) do
    found[i] = score and string.rep('0', 16) .. string.sub(marks[i], 1, 9)
  end
  return found
end

