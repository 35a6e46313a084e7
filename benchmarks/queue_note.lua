-- queue_note.lua: note down who holds a fair lock, and who waits for it.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  its queue: list of waiters, the next one first
-- KEYS[3]  the notes: list of owners, each followed by the waiters, separated by spaces
--
-- Returns  n  the notes so far
local lock, queue, notes = KEYS[1], KEYS[2], KEYS[3]
local words = redis.call('HKEYS', lock)
for _, waiter in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  words[#words + 1] = waiter
end
return redis.call('RPUSH', notes, table.concat(words, ' '))
