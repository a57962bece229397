-- Reads the state of a poll. Needs state, the field ":state" of the book, or false. Gives slots,
-- changes, buckets, ballots, kinds and ended, and tail, the text behind the first.

local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
