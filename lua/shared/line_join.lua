-- Gives a waiter a place at the end of the line, from 1 on, unless it has one; at the front, up to 0, if it had
-- one before, since places are lost near the head only. number is its place among the waiters of this call,
-- placed how many of them had places, last the last place or 0, and front is nil at first.
-- needs: line, member, number, placed, last, front

if not redis.call('ZSCORE', line, member) then
  if number <= placed then
    local least = tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2] or 1)
    front = front or math.min(least, 1) - placed - 1
    redis.call('ZADD', line, front + number, member)
  else
    last = last + 1
    redis.call('ZADD', line, last, member)
  end
end
