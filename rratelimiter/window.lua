-- window.lua: take tokens of a window if it has them now, reserve them for a later moment, or only look.
--
-- KEYS[1]  the log: list of '<µs> <tokens> <total>', a take each, in order: when it counts from, by the server's clock; how
--          many tokens; how many with all takes before it
-- ARGV[1]  tokens that any window has
-- ARGV[2]  how long a window is, µs
-- ARGV[3]  tokens to take
-- ARGV[4]  longest wait, µs; 0 takes nothing that is not there now, negative for any; empty takes and writes nothing
--
-- Returns  an array: 1 if the tokens were taken, 0 if not; µs until they are there; tokens that are in use; µs until all
--          are back; of what was taken the entry in the log
local log = KEYS[1]
local all, length, count, longest = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, tonumber(ARGV[4])

local size = redis.call('llen', log)
local function at(i)
  local from, tokens, total = string.match(redis.call('lindex', log, i), '^(%d+) (%d+) (%d+)$')
  return { from = tonumber(from), tokens = tonumber(tokens), total = tonumber(total) }
end

-- first returns the place of the first take whose field is at least so much. It is mostly near the front.
local function first(field, least)
  local low, high = 0, 1
  while high <= size and at(high - 1)[field] < least do
    low, high = high, high * 2
  end
  high = math.min(high - 1, size)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if at(middle)[field] < least then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local last = size > 0 and at(-1) or { from = 0, tokens = 0, total = 0 }
if not last.from then
  return redis.error_reply('WRONGTYPE the key holds no log of a rate limiter')
end
local over = first('from', now - length + 1) -- how many have left the window
local used, from = 0, now
if over < size then
  local oldest = at(over)
  used = last.total - oldest.total + oldest.tokens
end
if used + count > all then
  from = at(first('total', last.total + count - all)).from + length
end
local wait = from - now
local left = math.max(last.from + length - now, 0)
if not longest or longest >= 0 and wait > longest then
  return { 0, wait, used, left }
end
from = math.max(from, last.from) -- if the clock was set back
local entry = string.format('%.0f %.0f %.0f', from, count, last.total + count)
left = from + length - now
redis.call('rpush', log, entry) -- first: after another write a full Redis would not refuse it
local kept = redis.pcall('pexpire', log, string.format('%.0f', math.floor(left / 1000) + 1))
if over > 0 and type(kept) ~= 'table' then
  kept = redis.pcall('ltrim', log, over, -1)
end
if type(kept) == 'table' and kept.err then -- a user that may not do it must take nothing
  redis.call('lrem', log, -1, entry)
  return kept
end
return { 1, wait, used + count, left, entry }
