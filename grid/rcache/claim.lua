-- claim.lua: claim a key for a load, unless somebody else has, or a result is kept.
--
-- KEYS[1]  the key: hash; times are ms since the epoch by the server's clock
--            kept: value, error or none, and data: the result; over: its end; stale: when it is to be refreshed, if it is; made:
--            owner id of the load that has made it
--            owner: owner id of the load that has claimed the key; lease: end of the claim; keep: 1 while its result is to be kept
--            error: text of the load that failed last; at: when it did
-- ARGV[1]  owner
-- ARGV[2]  lease, ms
-- ARGV[3]  for how long the call has waited, ms; -1 for a refresh, which does not wait
--
-- Returns  an array
--          -2              claimed
--          n               another load has claimed it, for n ms at most, unless that is renewed; or there is nothing to refresh
--          -3, kept, data  a result is kept, or the call has waited for a load that failed, as an error
local key = KEYS[1]
local owner, lease, waited = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local e = look(key)
local refresh = waited < 0
if e.there and not refresh then
  return { -3, e.kept, redis.call('hget', key, 'data') }
elseif e.claimed then
  return { e.lease - now }
elseif refresh and e.there and (e.stale > now or e.at + 1000 > now) then
  return { 0 }
elseif not refresh and e.error and e.at > now - waited then
  return { -3, 'error', e.error }
end
e.lease = now + lease
redis.call('hset', key, 'owner', owner, 'lease', e.lease, 'keep', 1)
return expire(key, e, 'owner', 'lease', 'keep') or { -2 }
