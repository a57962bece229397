-- Takes units from the sum of a choice, one. kinds is how many choices the tally has by the book. A tally that has
-- not so much is lost, and stays as it is.
-- needs: tally, kinds, one, units
-- gives: kinds

if (redis.call('HGET', tally, one) or 0) + 0 >= units + 0 and
  redis.call('HINCRBY', tally, one, '-' .. units) == 0 then
  redis.call('HDEL', tally, one)
  kinds = kinds - 1
end
