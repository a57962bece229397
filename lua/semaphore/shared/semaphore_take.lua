-- Takes a holder's permits. Needs permits, holder, cost, lease and now.

for number = 1, cost do
  redis.call('ZADD', permits, now + lease, number .. '|' .. holder)
end
