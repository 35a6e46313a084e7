-- permit_resize.lua: carry out one batch of a client's changes of how many permits there are, those out included, once.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the client's last batch: string, its number, its reply, and the kind of object
-- KEYS[3]  the permits that are out: zset, id -> end of the lease, epoch ms; may be missing where only p is among the changes
-- ARGV[1]  number of the batch
-- ARGV[2]  1 to record the batch although it changes nothing
-- ARGV[3]  how long a batch is recorded, ms
-- ARGV[4]  channel of the waiters
-- ARGV[5..n]  changes, a letter and a number n: c create with n permits in all; s set to n in all; p add n; x nothing
--
-- Returns  an array of integers: for each change 1 for done and 0 for not; messages say how many permits were set or added
--          an empty array  a later batch of the client is recorded, or this one had met a wrong type that is gone
local available, last, out = KEYS[1], KEYS[2], KEYS[3]
local number, record, keep, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local stored = redis.call('mget', available, last)
local stopped -- by a wrong type, which left the number alone
if stored[2] then
  local seen = tonumber(string.match(stored[2], '^%d+'))
  if seen >= tonumber(number) then
    local again = {}
    if seen == tonumber(number) then
      for n in string.gmatch(stored[2], ' (-?%d+)') do again[#again + 1] = tonumber(n) end
    end
    stopped = seen == tonumber(number) and #again == 0
    if not stopped then return again end
  end
end
local text = stored[1] or redis.call('exists', available) == 1 and 'another type'
if text and not string.match(text, '^-?%d+$') then
  -- The caller is told that nothing was done: a late sending of this batch must not do it.
  if record == '1' then redis.call('set', last, number, 'px', keep) end
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
if stopped then return {} end
local held = out and redis.call('zcard', out) or 0
local free, exists, lasts, touched, reply, messages = tonumber(text or 0), text, true, false, {}, {}
for i = 5, #ARGV do
  local op, digits = string.match(ARGV[i], '^(%a)(-?%d*)$')
  local n, done = tonumber(digits) or 0, 0
  if op == 'p' then
    free, exists, lasts, done = free + n, true, false, 1 -- without a TTL, as Java leaves it
  elseif op == 's' or op == 'c' and not exists then
    local more = n - held - free
    if exists and more == 0 then n = 0 end -- nobody needs a message
    free, exists, done = free + more, true, 1
  end
  if done == 1 and n > 0 then messages[#messages + 1] = n end
  touched = touched or done == 1
  reply[#reply + 1] = done
end
-- An error must mean that nothing was done, so all that may be refused comes before the number changes.
for _, n in ipairs(messages) do redis.call('publish', channel, n) end
if touched or record == '1' then
  redis.call('set', last, number .. ' ' .. table.concat(reply, ' ') .. ' permits', 'px', keep)
end
local now = string.format('%.0f', free)
if touched and lasts then redis.call('set', available, now, 'keepttl') elseif touched then redis.call('set', available, now) end
return reply
