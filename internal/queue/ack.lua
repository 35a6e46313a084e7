-- ack.lua: remove messages whose work is done, and remember their ids for a while.
--
-- KEYS[1]  meta: hash
-- KEYS[2]  due: sorted set of messages
-- KEYS[3]  flight: sorted set of claimed messages
-- KEYS[4]  dead: sorted set of dead letters
-- KEYS[5]  bodies: hash, id -> body
-- KEYS[6]  claims: hash, id -> state (h held, n not held), number of the latest claim (16 digits), attempts
-- KEYS[7]  errors: hash, id -> text of the last error
-- KEYS[8]  done: sorted set, ids by the time at which they are forgotten, µs
-- KEYS[9]  receipts: hash, id in done -> number of the claim that was acknowledged
-- ARGV[1..n]  for each message: member, claim, for how long to remember its id in ms
--
-- Returns  an array: for each message 1 if it is done under this claim, 0 if the claim is not its latest
local keys = {
  meta = KEYS[1], due = KEYS[2], flight = KEYS[3], dead = KEYS[4], bodies = KEYS[5], claims = KEYS[6], errors = KEYS[7], done = KEYS[8],
  receipts = KEYS[9],
}
local remove, reply = acknowledge(keys, ARGV)
remove()
return reply
