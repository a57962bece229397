-- Forgets permits whose lease is over, and stores how many are held.
-- needs: permits, now, held

redis.call('ZREMRANGEBYSCORE', permits, 0, now)
if held > 0 then
  redis.call('ZADD', permits, -held, '')
else
  redis.call('ZREM', permits, '')
end
