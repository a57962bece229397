-- Votes: reads the tally of a poll, and reports what is lost. It writes nothing.
--
-- KEYS  1 voters   hash, as vote writes it
--       2 tally    hash, as vote writes it
--       3 book     hash, as vote writes it
--       4 audit    stream, as vote writes it; absent: none is kept
-- ARGV  none
-- Returns {lost, audit, sums}
--       lost    tally (or a choice of it), book, or empty
--       audit   1 when the audit stream has begun and is lost
--       sums    {choice, sum, ...}

local voters, tally, book, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local b = redis.call('HMGET', book, ':state', ':audit')
local state, lost, silent = b[1], '', 0
-- shared vote_state
local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
-- end vote_state
if not state and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  lost = 'book'
elseif redis.call('HLEN', tally) < kinds then
  lost = 'tally'
end
if audit and b[2] and redis.call('EXISTS', audit) == 0 then
  silent = 1
end
return {lost, silent, redis.call('HGETALL', tally)}
