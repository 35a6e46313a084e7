-- block.lua: take a block of plain ids.
--
-- KEYS[1]  the generator: string, the highest id that was taken
-- ARGV[1]  how many ids
-- ARGV[2]  the lowest id that they may have: the one after the last that the client has had, 0 for any
--
-- Returns  the first id of the block
local generator = KEYS[1]
local count, lowest = tonumber(ARGV[1]), tonumber(ARGV[2])

local last = redis.call('get', generator)
if last and (not string.match(last, '^%d+$') or tonumber(last) >= 9e15) then -- beyond 2^53 a script would round
  return redis.error_reply('WRONGTYPE the key holds no id')
end
local time = redis.call('time')
local first = math.max(tonumber(last or 0) + 1, lowest, time[1] * 1000000 + time[2])
redis.call('set', generator, string.format('%.0f', first + count - 1)) -- tostring would round
return first
