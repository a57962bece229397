-- Stores how many permits are held, with those whose lease is over.
-- needs: permits, held

if held > 0 then
  redis.call('ZADD', permits, -held, '')
else
  redis.call('ZREM', permits, '')
end
