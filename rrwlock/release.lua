-- release.lua: end a holder, whatever its mode and its levels. Wake all who wait after a writer, and the writers after the last reader.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- ARGV[1]  channel of its waiters
-- ARGV[2]  what the keys of readers begin with: strings, one for each level, which live as long as it
-- ARGV[3]  owner
-- ARGV[4]  how many other readers to look at: among more of them the dead are left to the next writer's try
--
-- Returns  0  the owner does not hold the lock; nothing was changed
--          1  released; others read
--          n  released, and free; one message sent to ARGV[1], which n - 1 clients received (on a cluster, those of this node)
--         -1  released, and free; the user may not publish to ARGV[1]
local lock = KEYS[1]
local channel, readers, owner, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local levels, wrote = redis.call('hget', lock, owner), redis.call('hexists', lock, owner .. ':write') == 1
if not levels and not wrote then
  return 0
end
local others = wrote and 0 or redis.call('hlen', lock) - 2
local ends, longest, gone = redis.call('pttl', lock), -2, { owner }
if others > most then
  longest = ends
elseif others > 0 then
  local fields = redis.call('hgetall', lock)
  for f = 1, #fields, 2 do
    local left = fields[f] == owner and -2 or remaining(lock, readers, fields[f], fields[f + 1])
    -- Who cannot be looked at, while the slot moves, may live. Who lives about as long as the hash need not be outlived.
    if type(left) == 'table' or left ~= -2 and left + 1000 >= ends then
      longest = ends
      break
    end
    if left == -2 and fields[f] ~= 'mode' and fields[f] ~= owner then
      gone[#gone + 1] = fields[f]
    end
    longest = math.max(longest, left)
  end
end

-- The first write decides. What follows may fail: the levels expire, and so does the hash.
local free = longest == -2
if free then
  redis.call('del', lock)
else
  redis.call('hdel', lock, unpack(gone))
end
for i = 1, tonumber(levels or 0) do
  redis.pcall('del', readers .. owner .. ':rwlock_timeout:' .. i) -- as the wire format builds them
end
if free then
  local received = redis.pcall('publish', channel, wrote and '1' or '0')
  return type(received) == 'number' and 1 + received or -1
end
if longest >= 0 and ends > longest then
  redis.pcall('pexpire', lock, math.max(longest, 1))
end
return 1
