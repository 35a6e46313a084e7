-- semaphore_apply.lua: carry out one batch of a client's operations on a semaphore, once.
--
-- KEYS[1]  the semaphore: string, the permits available, which may be below 0
-- KEYS[2]  the client's last batch: string, its number, its reply, and the kind of object
-- ARGV[1]  number of the batch
-- ARGV[2]  1 to record the batch although it changes nothing
-- ARGV[3]  how long a batch is recorded, ms
-- ARGV[4]  channel of the waiters
-- ARGV[5..n]  operations, a letter and a number n: a acquire in line, not after one that was refused; t try to acquire;
--          r release; b release, followed by the most that may be available; s set if missing; p add; d drain; x nothing
--
-- Returns  an array of integers: for each operation 1 for done and 0 for not, of d the permits drained; the permits then
--          available; how many clients received the message about more permits
--          an empty array  a later batch of the client is recorded, or this one had met a wrong type that is gone
local semaphore, last = KEYS[1], KEYS[2]
local number, record, keep, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local stored = redis.call('mget', semaphore, last)
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
local text = stored[1] or redis.call('exists', semaphore) == 1 and 'another type'
if text and (not string.match(text, '^-?%d+$') or math.abs(tonumber(text)) >= 1e14) then -- beyond it a script would round
  -- The caller is told that nothing was done: a late sending of this batch must not do it.
  if record == '1' then redis.call('set', last, number, 'px', keep) end
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if stopped then return {} end
local before = tonumber(text or 0)
local now, exists, set, refused, touched, frees, reply = before, text, false, false, false, false, {}
for i = 5, #ARGV do
  local op, digits, most = string.match(ARGV[i], '^(%a)(-?%d*) ?(%d*)$')
  local n, done = tonumber(digits) or 0, 0
  if (op == 'a' or op == 't') and now >= n and not refused then
    now, done = now - n, 1
  elseif op == 'a' then
    refused = true
  elseif op == 'r' or op == 'b' and now + n <= tonumber(most) then
    now, done, set, exists, frees = now + n, 1, set or not exists, true, true
  elseif op == 's' and not exists or op == 'p' then
    now, done, set, exists = now + n, 1, true, true
  elseif op == 'd' and now > 0 then
    done = now
    now, set = 0, true
  end
  touched = touched or done ~= 0
  reply[#reply + 1] = done
end
-- An error must mean that nothing was done, so all that may be refused comes before the number changes.
reply[#reply + 1] = now
reply[#reply + 1] = now > before and now > 0 and redis.call('publish', channel, now) or 0
if touched or record == '1' then
  -- Full memory refuses a script's first write, but never this one.
  if frees or not touched then redis.call('pexpire', last, keep) end
  redis.call('set', last, number .. ' ' .. table.concat(reply, ' ') .. ' semaphore', 'px', keep)
end
-- What sets the number ends a TTL, as in Java; what moves it does not.
if set then redis.call('set', semaphore, now) elseif now ~= before then redis.call('set', semaphore, now, 'keepttl') end
return reply
