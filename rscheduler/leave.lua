-- leave.lua: note that a process does not run the scheduler any more.
--
-- KEYS[1]  alive: sorted set of processes
-- ARGV[1]  the process
--
-- Returns  1 if it had run it, 0 if not
local alive, process = KEYS[1], ARGV[1]

return redis.call('zrem', alive, process)
