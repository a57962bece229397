-- Reads the state of a part of a poll, the field ":state" of the book, or false. tail is the text behind the
-- first number.
-- needs: state
-- gives: slots, tail, changes, buckets, ballots, kinds, ended

local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
