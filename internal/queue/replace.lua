-- replace.lua: see to offers whose ids are taken. It stands before offer.lua.
--
-- Returns  nothing. It defines terms, which returns whether an offer replaces one of its id, when it is due, µs, and bytes 15 and 16 of its
--          member or nothing; regroup, which returns the body of what replaces a message in flight, with the group of that; judge, which
--          returns what an offer under an id that a body has comes to: 3 if that is a dead letter, 2 if it replaces one that waits or is in
--          flight, or 0; then the member of one that waits, or what is to be written to the body and the claim of one in flight, which goes
--          on; prepare, whose commands change nothing, and fail if those of replace would; replace, which does so; and forget, after which
--          what is known of ids that were acknowledged lately keeps no offer out.
local function terms(pause, now)
  local replaces, delay, marker = string.match(pause, '^(r?)(%S*) ?(.*)$')
  local at = tonumber(delay) or tonumber(string.sub(delay, 2)) - now - 1
  return replaces == 'r', at > 0 and now + at + 1 or now, marker
end

local function regroup(old, body, grouped)
  local size = tonumber(string.sub(body, 2, 9), 16)
  local head, payload, own = string.sub(body, 10, 9 + size), string.sub(body, 10 + size), ''
  if string.byte(body) < 97 then own, head = string.match(head, '^([^\n]*)\n(.*)$') end
  if not grouped and not string.find(own, 'g') then return body end
  head = string.match(own, '^[^g]*') .. (grouped and 'g' .. terms_of(old, 26) or '') .. '\n' .. head
  return string.upper(string.sub(body, 1, 1)) .. string.format('%08x', #head) .. head .. payload
end

local function judge(queue, id, old, body, score, replaces, now)
  local dead, flight, claims = queue.dead, queue.flight, queue.claims
  local sequence = string.sub(old, 1, 16)
  if redis.call('zscore', dead, sequence .. id) then return 3 end
  if not replaces then return 0 end
  local ends = redis.call('zscore', flight, sequence .. id)
  if not ends or tonumber(ends) <= now then return 2, sequence .. id end
  local digits = string.rep('%d', 16)
  local claim, client = string.match(redis.call('hget', claims, id) or '', '^%a(' .. digits .. ')%d+(.*)$')
  return 2, nil, {id = id, body = sequence .. regroup(old, body, is_grouped(sequence)), claim = 'r' .. (claim or string.rep('0', 16)) .. score .. (client or '')}
end

local function prepare(queue, layout)
  local meta, due, claims = queue.meta, queue.due, queue.claims
  redis.call('hdel', claims, '')
  redis.call('zrem', due, '')
  redis.call('hset', meta, 'layout', layout)
end

local function replace(queue, waiting, flying)
  local due, flight, bodies, claims, errors = queue.due, queue.flight, queue.bodies, queue.claims, queue.errors
  for _, member in ipairs(waiting) do
    redis.call('hdel', claims, string.sub(member, 17))
    redis.call('hdel', errors, string.sub(member, 17))
    redis.call('zrem', due, member)
    redis.call('zrem', flight, member) -- if its claim ran out
  end
  for _, m in ipairs(flying) do
    redis.call('hset', bodies, m.id, m.body)
    redis.call('hset', claims, m.id, m.claim)
    redis.call('hdel', errors, m.id)
  end
end

local function forget(queue, ids, now)
  local done = queue.done
  for _, id in ipairs(ids) do
    redis.call('zadd', done, 'xx', string.format('%.0f', now), id) -- ack.lua removes it
  end
end

