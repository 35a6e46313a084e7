-- removed.lua: keep the places of messages of groups that are removed in flight. It stands after group.lua.
--
-- Returns  nothing. It defines remove, which takes a message out of one of the sorted sets of a queue, before arrange: one of a group in
--          flight keeps its place until its claim ends; and vacate, which does so for members with claims under which they were removed.
local function vacate(queue, missed, now)
  local due, places = queue.due, queue.places
  for _, one in ipairs(missed) do
    local member, claim = unpack(one)
    if is_grouped(member) and string.match(redis.call('hget', places, member) or '', ' (%d+)$') == claim then
      redis.call('zrem', due, member)
      arrange(queue, {member}, now)
    end
  end
end

local function remove(queue, set, member, claim, now)
  local due, places = queue.due, queue.places
  local ends = set == queue.flight and is_grouped(member) and tonumber(redis.call('zscore', set, member))
  redis.call('zrem', set, member)
  if ends and ends > now and claim then
    redis.call('zadd', due, exact(math.ceil(ends / 1000) - epoch + removed), member)
    redis.call('hset', places, member, redis.call('hget', places, member) .. ' ' .. claim)
  end
end

