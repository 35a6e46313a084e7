-- ended.lua: what is known of a task that has ended. It stands before the scripts that ask for it, or remove messages of tasks.
--
-- Returns  nothing. It defines task_terms, which returns the task of a body, and the client that waits for its end, or nothing; and
--          remember, which notes for how long, ms, that messages of tasks were removed, before they are, and whom to tell.
local function task_terms(body)
  return string.match(' ' .. (string.match(body, '^[^\n]*', 26) or ''), ' T(%S+) ?w?(%S*)')
end

local function remember(queue, ids, now, keep, tell)
  local done, receipts, bodies = queue.done, queue.receipts, queue.bodies
  local left = redis.call('pttl', done)
  for _, id in ipairs(ids) do
    local task, client = task_terms(redis.call('hget', bodies, id) or '')
    redis.call('zadd', done, string.format('%.0f', now + keep * 1000), '\1' .. id)
    redis.call('hset', receipts, '\1' .. id, task or '')
    if client and client ~= '' then tell[#tell + 1] = {queue.channel .. client .. ':ends', id} end
  end
  if #ids == 0 or left >= keep then return end
  redis.call('pexpire', done, 2 * keep)
  redis.call('pexpire', receipts, 2 * keep)
end
