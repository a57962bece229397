-- Adds to the sum of a choice, one. kinds is how many choices the tally has by the book. found says whether
-- the tally has all its choices; if not, it stays as it is.
-- needs: tally, one, units, kinds
-- gives: found, kinds

local found = true
if redis.call('HINCRBY', tally, one, units) == units + 0 then -- a new choice
  found = redis.call('HLEN', tally) > kinds
  if found then
    kinds = kinds + 1
  else
    redis.call('HDEL', tally, one)
  end
end
