-- lead.lua: write down who leads, if it still holds the lock. Its first call draws the term; later ones set the value, and
-- write again what was lost.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  who leads: hash of term, owner, since, value and version; the last term stays after the others
-- KEYS[3]  the candidates: hash, owner -> until when it is good, in ms, a blank, its value
-- ARGV[1]  owner
-- ARGV[2]  its term; 0 to draw one
-- ARGV[3]  since when it leads, in µs; 0 with the term
-- ARGV[4]  value
-- ARGV[5]  version of the value; the highest counts
-- ARGV[6]  channel of the observers
-- ARGV[7]  for how long KEYS[2] is kept, ms
--
-- Returns  an array: the term; since when it leads, in µs. Both are 0 if the owner does not hold the lock; nothing was changed
local lock, leader, candidates = KEYS[1], KEYS[2], KEYS[3]
local owner, term, since, value, version = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local channel, ttl = ARGV[6], ARGV[7]

if redis.call('hexists', lock, owner) == 0 then
  return { 0, 0 }
end
local time = redis.call('time')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local stored = redis.call('hmget', leader, 'owner', 'term', 'since', 'version')
local mine = stored[1] == owner
if term == '0' and mine then -- this call ran before, and the reply was lost
  term, since = stored[2], stored[3]
elseif term == '0' then
  term = string.format('%.0f', math.max(now, (tonumber(stored[2] or 0) or 0) + 1)) -- tostring would round
  since = string.format('%.0f', now)
end
local dead = { owner }
local entries = redis.call('hgetall', candidates)
for i = 1, #entries, 2 do
  if (tonumber(string.match(entries[i + 1], '^%d+')) or 0) < now / 1000 then
    dead[#dead + 1] = entries[i]
  end
end

local known = mine and stored[2] == term and (tonumber(stored[4] or 0) or 0) >= tonumber(version)
if not known then
  redis.call('publish', channel, '')
end
-- All that a user may not be allowed comes before the first write that counts.
redis.call('pexpire', leader, ttl)
redis.call('hdel', candidates, '')
if not known then
  redis.call('hset', leader, 'term', term, 'owner', owner, 'since', since, 'value', value, 'version', version)
end
for _, id in ipairs(dead) do
  redis.call('hdel', candidates, id)
end
redis.call('pexpire', leader, ttl)
return { tonumber(term), tonumber(since) }
