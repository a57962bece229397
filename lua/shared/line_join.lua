-- Gives a waiter a place at the end of the line, unless it has one. Needs line, member and last, the last
-- place.

if not redis.call('ZSCORE', line, member) then
  last = last + 1
  redis.call('ZADD', line, last, member)
end
