-- leader.lua: who leads.
--
-- KEYS[1]  the lock: hash, owner -> levels
-- KEYS[2]  who leads: hash, see lead.lua
--
-- Returns  an array: owner, value, term, since when it leads, in µs; an empty one if nobody leads
local lock, leader = KEYS[1], KEYS[2]

local said = redis.call('hmget', leader, 'owner', 'value', 'term', 'since')
-- One that has lost the lock is written down until the next one leads.
if not said[1] or redis.call('hexists', lock, said[1]) == 0 then
  return {}
end
return said
