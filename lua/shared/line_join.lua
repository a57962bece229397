-- Gives a waiter a place at the end of the line, unless it has one. last is the last place.
-- needs: line, member, last

if not redis.call('ZSCORE', line, member) then
  last = last + 1
  redis.call('ZADD', line, last, member)
end
