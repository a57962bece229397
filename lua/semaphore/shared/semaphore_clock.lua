-- Ends leases in time where the clock was set back: no lease ends later than its length from now on.
-- needs: permits, lease, now, held, whose, ends
-- gives: ends

if held > 1 or whose and ends > now + string.match(whose, '^%d+|[^|]+|(%d+)') then
  local from = held > 1 and now + lease or now
  local late = redis.call('ZRANGEBYSCORE', permits, '(' .. from, '+inf', 'WITHSCORES')
  for i = 1, #late, 2 do
    local latest = now + string.match(late[i], '^%d+|[^|]+|(%d+)')
    if latest < tonumber(late[i + 1]) then
      redis.call('ZADD', permits, latest, late[i])
      ends = math.min(ends, latest)
    end
  end
end
