-- permit_resize.lua: carry out one batch of a client's changes of how many permits there are, those out included, once.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the client's last batch: string, its number and its reply
-- KEYS[3]  the permits that are out: zset, id -> end of the lease, epoch ms
-- KEYS[4]  channel of the waiters
-- ARGV[1]  number of the batch
-- ARGV[2]  1 to remember the batch although it changes nothing
-- ARGV[3]  how long a batch is remembered, ms
-- ARGV[4..n]  changes, a letter and a number n: c create with n permits in all; s set to n in all; p add n; x nothing
--
-- Returns  an array of integers: for each change 1 for done and 0 for not; KEYS[4] is told how many permits were set or added
--          an empty array  a later batch of the client was seen, or this one had met an error that has gone
local available, last, out, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, remember, keep = ARGV[1], ARGV[2], ARGV[3]

local record = redis.call('get', last)
local stopped -- by an error below, which left the number alone
if record then
  local seen = tonumber(string.match(record, '^%d+'))
  if seen >= tonumber(number) then
    local again = {}
    if seen == tonumber(number) then
      for n in string.gmatch(record, ' (-?%d+)') do again[#again + 1] = tonumber(n) end
    end
    stopped = seen == tonumber(number) and #again == 0
    if not stopped then return again end
  end
end
-- An error below must not let the batch be carried out when it arrives once more.
if remember == '1' then redis.call('set', last, number, 'px', keep) end
local stored = redis.call('get', available)
local free = tonumber(stored or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
if stopped then return {} end
local held, exists, touched, reply = redis.call('zcard', out), stored, false, {}
for i = 4, #ARGV do
  local op, digits = string.match(ARGV[i], '^(%a)(-?%d*)$')
  local n, done = tonumber(digits) or 0, 0
  if op == 'p' then
    free, exists, done = free + n, true, 1
    redis.call('set', available, string.format('%.0f', free)) -- without a TTL, as Java leaves it
  elseif op == 's' or op == 'c' and not exists then
    local more = n - held - free
    free, done = free + more, 1
    if exists and more == 0 then
      n = 0 -- nobody needs to hear of it
    end
    redis.call('incrby', available, string.format('%.0f', more))
    exists = true
  end
  if done == 1 and n > 0 then
    redis.call('publish', channel, n)
  end
  touched = touched or done == 1
  reply[#reply + 1] = done
end
if touched or remember == '1' then
  redis.call('set', last, number .. ' ' .. table.concat(reply, ' '), 'px', keep)
end
return reply
