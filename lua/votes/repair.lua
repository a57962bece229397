-- Votes: replaces the tally of a poll by the sums of its records, unless the poll has changed since they
-- were counted. A lost audit stream begins anew with the next event.
--
-- KEYS  1 voters   hash, as vote writes it
--       2 tally    hash, as vote writes it
--       3 book     hash, as vote writes it
--       4 audit    stream, as vote writes it; absent: none is kept
-- ARGV  1 changes  the first two numbers of the book's ":state" when the records were counted
--       2 choice, 3 sum, and so on: the sums of the records
-- Returns 1 when the tally was replaced, 0 when something has changed.

local voters, tally, book, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local state = redis.call('HGET', book, ':state')
-- shared vote_state
local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
-- end vote_state
if not state or string.match(state, '^%d+ %d+') ~= ARGV[1] then
  return 0
end
-- A full Redis rejects this before the tally is deleted.
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots, changes + 1, buckets,
  ballots, (#ARGV - 1) / 2, ended))
redis.call('DEL', tally)
for i = 2, #ARGV, 2 do
  redis.call('HSET', tally, ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', tally, redis.call('PTTL', voters))
if audit and redis.call('EXISTS', audit) == 0 then
  redis.call('HDEL', book, ':audit')
end
return 1
