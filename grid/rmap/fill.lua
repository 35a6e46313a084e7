-- fill.lua: read entries of a map on the master, and for how long they are there.
--
-- KEYS[1]     the map: hash
-- ARGV[1..n]  keys of entries
--
-- Returns  an array, with two elements for each key
--          the value, or nothing
--          time to live of the entry or of the map, the shorter one, ms; 0 for none
local key = KEYS[1]
local entries, reply = ARGV, {}

local values = redis.call('hmget', key, unpack(entries))
local ttls = has_times() and redis.call('hpttl', key, 'fields', #entries, unpack(entries))
local left = redis.call('pttl', key)
for i, value in ipairs(values) do
  local ttl = ttls and ttls[i] or -1
  if ttl == -2 then -- hmget still finds an entry in its last millisecond, hpttl may not
    ttl = 0
  elseif ttl == -1 or left >= 0 and left < ttl then
    ttl = left
  end
  reply[2 * i - 1], reply[2 * i] = value, ttl < 0 and 0 or math.max(ttl, 1)
end
return reply
