-- foreign.lua: note that somebody waits who leaves no mark, as a writer of Redisson does. Where that was noted before, hold back readers.
--
-- KEYS[1]  the lock: hash, mode -> read or write, owner -> levels of reading, owner:write -> levels of writing
-- KEYS[2]  waiting writers: sorted set, owner -> Redis's time until which its mark is good, ms. The mark of the others has redisson for
--          an owner; one that is no longer good is a note
-- ARGV[1]  how long the mark is good at most, ms
-- ARGV[2]  how old the note has to be, ms: by then no client listens that waited for a writer which was there before
-- ARGV[3]  for how long the note is kept, ms; a writer that is refused takes it away, because it and its readers are who listens
--
-- Returns  1  readers are held back
--          0  it was noted, or they are held back already, or nobody reads
local lock, writers = KEYS[1], KEYS[2]
local mark, age, note = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

if redis.call('hget', lock, 'mode') ~= 'read' then
  return 0
end
local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local last = redis.call('zrevrange', writers, 0, 0, 'withscores')
if last[2] and tonumber(last[2]) > now then
  return 0
end
local noted = redis.call('zscore', writers, 'redisson')
if noted and tonumber(noted) + age > now then
  return 0
end
redis.call('zadd', writers, noted and now + mark or now, 'redisson')
redis.call('pexpire', writers, noted and mark or note)
return noted and 1 or 0
