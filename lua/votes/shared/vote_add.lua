-- Adds to the sum of a choice. Needs tally; kinds, the number of choices that the tally has by the book, which
-- it changes; one, the choice; and units. Gives found: the tally has all its choices. If not, it stays as it is.

local found = true
if redis.call('HINCRBY', tally, one, units) == units + 0 then -- a new choice
  found = redis.call('HLEN', tally) > kinds
  if found then
    kinds = kinds + 1
  else
    redis.call('HDEL', tally, one)
  end
end
