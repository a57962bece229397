-- Takes a holder's permits.
-- needs: cost, permits, now, lease, holder

for number = 1, cost do
  redis.call('ZADD', permits, now + lease, number .. '|' .. holder)
end
