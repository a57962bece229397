-- Ends the lease in time where the clock was set back: it ends no later than its length from now on.
-- needs: held, now, ends, lock
-- gives: ends

local latest = held and now + string.match(held, '^[^|]+|(%d+)')
if held and latest < ends then
  ends = latest
  redis.call('HSET', lock, 'ends', ends)
end
