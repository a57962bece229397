-- Ends leases in time where the clock was set back: no lease ends later than its length from now on.
-- needs: permits, now, lease

local late = redis.call('ZRANGEBYSCORE', permits, '(' .. (now + lease), '+inf', 'WITHSCORES')
for i = 1, #late, 2 do
  local ends = now + string.match(late[i], '^%d+|[^|]+|(%d+)')
  if ends < tonumber(late[i + 1]) then
    redis.call('ZADD', permits, ends, late[i])
  end
end
