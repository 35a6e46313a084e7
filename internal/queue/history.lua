-- history.lua: keep the last attempts of a message. It stands before the scripts that end attempts.
--
-- The value of a message in errors is the text of its last error, and up to five attempts, the newest first, with a \1 before each: the
-- number of its claim, its length in µs or a hyphen, the client that had it, and the beginning of its error, with a space between.
--
-- Returns  nothing. It defines tried, which notes an attempt: with a text, or with that of the one before if it is empty; an attempt of the
--          same claim takes the place of the one that was noted before; and give_up, which notes why a message is dead, or a usual reason
--          if it has no text, and returns the text.
local function tried(errors, id, text, claim, length, client)
  local before = redis.call('hget', errors, id) or ''
  local past = string.match(before, '\1.*$') or ''
  if string.sub(past, 2, 17) == claim then past = string.match(past, '^\1[^\1]*(.*)$') end
  past = string.match(past, '^\1?[^\1]*\1?[^\1]*\1?[^\1]*\1?[^\1]*')
  local record = '\1' .. claim .. ' ' .. length .. ' ' .. client .. ' ' .. string.sub(text, 1, 512)
  redis.call('hset', errors, id, (text ~= '' and text or string.match(before, '^[^\1]*')) .. record .. past)
end

local function give_up(errors, id, why, usual)
  local text, past = string.match(redis.call('hget', errors, id) or '', '^([^\1]*)(.*)$')
  text = why or text ~= '' and text or usual
  redis.call('hset', errors, id, text .. past)
  return text
end
