-- numbers.lua: the numbers of tasks. It stands before the scripts that put messages of tasks into the queue, or claim them.
--
-- They are in meta: t: and the name of a task is the field of its number, and the field tasks says how many there are.
--
-- Returns  nothing. It defines numbered, which returns bytes 15 and 16 of a member for the first of them, a colon and a task, and notes the
--          task in fresh if it is new, or nothing for the 101st task; number_fields, which returns the fields of tasks in a list of names
--          and counts; handled, which returns a table of the numbers of these tasks, and how many messages a caller wants of each, from the
--          values of the fields, which stand in head after those passed; and numbers_in, which returns the numbers of which such a table has
--          some left, as bytes.
local function numbered(meta, marker, fresh)
  local name = string.sub(marker, 3)
  local number = fresh[':' .. name] or tonumber(redis.call('hget', meta, 't:' .. name) or '')
  if not number then
    number = (fresh.count or tonumber(redis.call('hget', meta, 'tasks') or 0)) + 1
    if number > 100 then return end
    fresh.count, fresh[':' .. name] = number, number
    for _, value in ipairs({'t:' .. name, number, 'tasks', number}) do fresh[#fresh + 1] = value end
  end
  return string.sub(marker, 1, 1) .. string.char(48 + number)
end

local function number_fields(items, from)
  local fields = {}
  for i = from, #items, 2 do fields[#fields + 1] = 't:' .. items[i] end
  return fields
end

local function handled(head, passed, items, from)
  local counts = {}
  for i = from, #items, 2 do
    passed = passed + 1
    if head[passed] then counts[tonumber(head[passed])] = tonumber(items[i + 1]) end
  end
  return counts
end

local function numbers_in(counts)
  local text = ''
  for number, n in pairs(counts) do
    if n > 0 then text = text .. string.char(48 + number) end
  end
  return text
end
