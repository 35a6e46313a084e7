-- apply.lua: carry out one batch of a client's operations on a latch, once.
--
-- KEYS[1]  the latch: string, the count, from 1 on
-- KEYS[2]  the client's last batch: string, its number and its reply
-- KEYS[3]  the participants that have counted down: set
-- KEYS[4]  the last time at which the latch opened: string, changed whenever it does
-- KEYS[5]  channel of the waiters
-- ARGV[1]  number of the batch
-- ARGV[2]  1 to remember the batch although it changes nothing
-- ARGV[3]  how long a batch, and the last opening, is remembered, ms
-- ARGV[4..n]  operations: a letter, and what it is about: c count down by a number; o count down once for a participant;
--          s set the count if there is none; k delete; x nothing
--
-- Returns  an array of integers: for each operation 1 for done and 0 for not
--          an empty array  a later batch of the client was seen, or this one had met an error that has gone
local latch, last, members, opened, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, remember, keep = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('mget', latch, last)
local stopped -- by an error below, which left the number alone
if stored[2] then
  local seen = tonumber(string.match(stored[2], '^%d+'))
  if seen >= tonumber(number) then
    local again = {}
    if seen == tonumber(number) then
      for n in string.gmatch(stored[2], ' (%d+)') do again[#again + 1] = tonumber(n) end
    end
    stopped = seen == tonumber(number) and #again == 0
    if not stopped then return again end
  end
end
-- An error below must not let the batch be carried out when it arrives once more.
if remember == '1' then redis.call('set', last, number, 'px', keep) end
local text = stored[1] or redis.call('get', latch) -- an error for what is no string
if text and (not string.match(text, '^%d+$') or tonumber(text) >= 1e14) then -- beyond it a script would round
  return redis.error_reply('WRONGTYPE the key holds no count')
end
if stopped then return {} end
local before = tonumber(text or 0)
local now, set, touched, reply = before, false, false, {}
for i = 4, #ARGV do
  local op, arg, was, done = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2), now, 0
  if op == 's' and now == 0 then
    now, done, set = tonumber(arg), 1, true
    redis.call('del', members)
    redis.call('publish', channel, '1')
  elseif op == 'c' and now > 0 then
    now, done = math.max(now - tonumber(arg), 0), 1
  elseif op == 'o' and now > 0 and redis.call('sadd', members, arg) == 1 then
    now, done = now - 1, 1
  elseif op == 'k' and now > 0 then
    now, done = 0, 1
  end
  if was > 0 and now == 0 then
    local time = redis.call('time')
    redis.call('set', opened, time[1] .. '.' .. time[2] .. '.' .. number, 'px', keep)
    redis.call('publish', channel, op == 'k' and '1' or '0')
  end
  touched = touched or done == 1
  reply[#reply + 1] = done
end
if now == 0 then
  redis.call('del', latch, members)
elseif set then
  redis.call('set', latch, now)
elseif now ~= before then
  redis.call('decrby', latch, before - now)
end
if touched or remember == '1' then
  redis.call('set', last, number .. ' ' .. table.concat(reply, ' '), 'px', keep)
end
return reply
