-- rounds.lua: how the rounds of a barrier end. It stands before the other scripts of this package.
--
-- Returns  nothing. It defines clock, Redis's time in ms; prepare, which forgets old rounds, and fails if a later command
--          would; outcome, which returns 1 for a participant whose round was complete, or, if it is entering, who had
--          entered, -1 for one whose round is broken and 0 for others; lapsed, which reports whether somebody's place is
--          good no longer; finish, which ends the round of all who have places in some sets, and wakes them.
--
-- What is kept of a participant in ended, and what its calls return then:
--   0  all have come; at a double barrier all have left   Await, Enter and Leave nil
--   1  broken while some had not come                     Await and Enter ErrBroken
--   2  broken while some had not left                     Enter nil, Leave ErrBroken
local function clock()
  local time = redis.call('time')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function prepare(ended, keep)
  -- A full Redis allows this write, and then the rest of the script.
  redis.call('zremrangebyscore', ended, '-inf', (clock() - keep) * 4)
  redis.call('zremrangebyrank', ended, 0, -20001)
  redis.call('zrange', ended, 0, 0)
  redis.call('zcard', ended)
  redis.call('zscore', ended, '')
  redis.call('zadd', ended, 'xx', 0, '')
  redis.call('pexpire', ended, keep)
end

local function outcome(ended, who, entering)
  local score = redis.call('zscore', ended, who)
  if not score then
    return 0
  end
  local broken = tonumber(score) % 4
  return (broken == 0 or broken == 2 and entering) and 1 or -1
end

local function lapsed(places)
  return #redis.call('zrangebyscore', places, '-inf', clock(), 'limit', 0, 1) > 0
end

local function finish(sets, ended, how)
  local now = clock()
  for _, places in ipairs(sets) do
    for _, who in ipairs(redis.call('zrange', places, 0, -1)) do
      redis.call('zadd', ended, now * 4 + how.broken, who)
    end
    redis.call('zremrangebyrank', places, 0, -1)
  end
  redis.call('pexpire', ended, how.keep)
  redis.pcall('publish', how.channel, '0') -- it is done: those who wait look again
end
