-- apply.lua: carry out one batch of a client's operations on a latch, once.
--
-- KEYS[1]  the latch: string, the count, from 1 on
-- KEYS[2]  the client's last batch: string, its number, its reply, and the kind of object
-- KEYS[3]  the participants that have counted down: set; may be missing where only c is among the operations
-- KEYS[4]  for how long the latch stays open once it has opened: string, ms, and 'open' then; missing for one that does not; may be
--          missing where only c and o are among the operations
-- KEYS[5]  the mark of the last time at which the count was set: string; missing where neither s nor t is among the operations
-- ARGV[1]  number of the batch
-- ARGV[2]  1 to record the batch although it changes nothing
-- ARGV[3]  how long a batch, and the mark, is recorded, ms
-- ARGV[4]  channel of the waiters
-- ARGV[5..n]  operations: a letter, and what it is about: c count down by a number; o count down once for a participant;
--          s set the count if there is none; t likewise, unless the latch stays open: a count, a colon and KEYS[4]; k delete;
--          x nothing
--
-- Returns  an array of integers: for each operation 1 for done and 0 for not
--          an empty array  a later batch of the client is recorded, or this one had met a wrong type that is gone
local latch, last, members, stays, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, record, keep, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local stored = redis.call('mget', latch, last, stays or latch)
local stopped -- by a wrong type, which left the number alone
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
local text = stored[1] or redis.call('exists', latch) == 1 and 'another type'
if text and (not string.match(text, '^%d+$') or tonumber(text) >= 1e14) then -- beyond it a script would round
  -- The caller is told that nothing was done: a late sending of this batch must not do it.
  if record == '1' then redis.call('set', last, number, 'px', keep) end
  return redis.error_reply('WRONGTYPE the key holds no count')
end
if stopped then return {} end
local now, set, cleared, touched, reply, counted, messages = tonumber(text or 0), false, false, false, {}, {}, {}
local open, ttl = stays and stored[3]
for i = 5, #ARGV do
  local op, arg, was, done = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2), now, 0
  if now == 0 and (op == 's' or op == 't' and not open) then
    local count, stay = string.match(arg, '^(%d+):?(%d*)$')
    now, open, done, set, messages[#messages + 1] = tonumber(count), stay ~= '' and stay, 1, true, '1'
  elseif op == 'c' and now > 0 then
    now, done = math.max(now - tonumber(arg), 0), 1
  elseif op == 'o' and now > 0 and not counted[arg] and (cleared or redis.call('sismember', members, arg) == 0) then
    now, done, counted[arg] = now - 1, 1, true
  elseif op == 'k' then
    done = now > 0 and 1 or 0
    now, open = 0, false
  end
  if now == 0 and tonumber(open) then ttl, open = open, 'open' end
  if (was == 0) ~= (now == 0) then cleared, counted = true, {} end
  if was > 0 and now == 0 then messages[#messages + 1] = op == 'k' and '1' or '0' end
  touched = touched or done == 1
  reply[#reply + 1] = done
end
local changed = stays and (ttl or open ~= stored[3])
touched = touched or changed
local stamp = set and table.concat(redis.call('time'), '.') .. '.' .. number
-- An error must mean that nothing was done: what an ACL forbids is found before the first write. Redis 6.2 cannot say it.
local needs = { { 'del', latch, needed = now == 0 or cleared and members or changed and not open },
  { 'sadd', members, '0', needed = next(counted) }, { 'publish', channel, '0', needed = #messages > 0 } }
for _, command in ipairs(touched and redis.acl_check_cmd and needs or {}) do
  if command.needed and not redis.acl_check_cmd(unpack(command)) then
    return redis.error_reply('NOPERM this user has no permission for ' .. command[1])
  end
end
if touched or record == '1' then
  if not set then redis.call('pexpire', last, keep) end -- full memory refuses a script's first write, but not this
  redis.call('set', last, number .. ' ' .. table.concat(reply, ' ') .. ' latch', 'px', keep)
end
if cleared and members then redis.call('del', members) end
if touched and now == 0 then redis.call('del', latch) end
for name in pairs(counted) do redis.call('sadd', members, name) end
if set then redis.call('set', mark, stamp, 'px', keep) end
if changed and not open then redis.call('del', stays) end
if changed and open then redis.call('set', stays, open, unpack(open == 'open' and { 'px', ttl } or {})) end
if touched and now > 0 then redis.call('set', latch, now, unpack(set and {} or { 'keepttl' })) end
for _, message in ipairs(messages) do redis.pcall('publish', channel, message) end -- it is done: those who wait look again
return reply
