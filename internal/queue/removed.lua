-- removed.lua: keep the places of messages of groups that are removed in flight. It stands after group.lua.
--
-- Returns  nothing. It defines remove, which takes a message out of one of the sorted sets of a queue, before arrange: one of a group in
--          flight keeps its place until its claim ends; and vacate, which ends the claims of messages that were removed.
local function vacate(queue, members, now)
  local due = queue.due
  for _, member in ipairs(members) do
    local stands = is_grouped(member) and tonumber(redis.call('zscore', due, member))
    if stands and lane_of(stands) == removed then
      redis.call('zrem', due, member)
      arrange(queue, {member}, now)
    end
  end
end

local function remove(queue, set, member)
  local due = queue.due
  local ends = set == queue.flight and is_grouped(member) and redis.call('zscore', set, member)
  redis.call('zrem', set, member)
  if ends then redis.call('zadd', due, exact(math.ceil(ends / 1000) - epoch + removed), member) end
end

