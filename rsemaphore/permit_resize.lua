-- permit_resize.lua: change how many permits there are, those that are out included. A change has a number, and a second run
-- of it does nothing but give the first one's reply.
--
-- KEYS[1]  the permits that are available: string, decimal
-- KEYS[2]  the permits that are out: zset, id -> end of the lease, epoch ms
-- KEYS[3]  channel of the waiters
-- KEYS[4]  the client's last change: string, its number and reply
-- ARGV[1]  number of the change, higher than that of the client's last one
-- ARGV[2]  create: to ARGV[3] if there is no such semaphore; set: to ARGV[3]; add: by ARGV[3]; void: a change of this
--          number that is still to come must do nothing
-- ARGV[3]  permits
-- ARGV[4]  how long KEYS[4] is kept, ms
--
-- Returns   1  done; a message sent to KEYS[3] if there are more permits
--           0  there is such a semaphore already; nothing was changed
--          -1  void; nothing was changed
local available, out, channel, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, how, permits, keep = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local seen, reply = string.match(redis.call('get', last) or '', '^(%d+) (%-?%d+)$')
if seen and tonumber(seen) >= tonumber(number) then
  return tonumber(seen) == tonumber(number) and tonumber(reply) or -1
end
local function done(result)
  redis.call('set', last, number .. ' ' .. result, 'px', keep)
  return result
end
if how == 'void' then
  return done(-1)
end

local stored = redis.call('get', available)
local free = tonumber(stored or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local held = redis.call('zcard', out)
if how == 'create' and stored then
  return done(0)
end
local more = permits
if how ~= 'add' then
  more = permits - held - free
  if more == 0 and stored then
    return done(1)
  end
end
if stored and how == 'set' then
  redis.call('incrby', available, more)
else
  redis.call('set', available, string.format('%.0f', free + more)) -- without a TTL, as Java leaves it
end
if permits > 0 then
  redis.call('publish', channel, permits)
end
return done(1)
