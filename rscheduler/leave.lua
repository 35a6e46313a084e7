-- leave.lua: note that a process does not run the scheduler any more.
--
-- KEYS[1]  alive: sorted set of processes
-- ARGV[1]  the process
--
-- Returns  1 if it had run it, 0 if not
return redis.call('zrem', KEYS[1], ARGV[1])
