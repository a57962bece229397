-- Gives a waiter a place at the end of the line, unless it has one; at the front, if it had one before, since
-- places are lost at the head only. number is its place among the waiters of this call, placed how many of them
-- had places, last the last place, and front is nil at first.
-- needs: line, member, number, placed, last, front

if not redis.call('ZSCORE', line, member) then
  if number <= placed then
    front = front or tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2] or 0) - placed - 1
    redis.call('ZADD', line, front + number, member)
  else
    last = last + 1
    redis.call('ZADD', line, last, member)
  end
end
