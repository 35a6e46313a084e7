-- acquire_all.lua: take several locks if all of them are free.
--
-- KEYS[1..n]  the locks: hashes, owner -> levels
-- ARGV[1]  lease, ms
-- ARGV[2..n+1]  owner of each lock
--
-- Returns  an array of two integers: of which lock, from 1, the second one tells; and that
--          -2  acquired, all of them (the first is 0); each owner holds one level
--          -1  the lock is busy, and the key has no TTL; nothing was changed
--           n  the lock is busy for n ms at most, unless it is renewed; nothing was changed
local lease = ARGV[1]

for i, lock in ipairs(KEYS) do
  local left = redis.call('pttl', lock)
  if left ~= -2 then
    -- An error for what is no hash.
    if redis.call('hexists', lock, 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the key holds a read-write lock')
    end
    return {i, left}
  end
end
for i, lock in ipairs(KEYS) do
  redis.call('hset', lock, ARGV[i + 1], 1)
  redis.call('pexpire', lock, lease)
end
return {0, -2}
