-- Ends the lease in time where the clock was set back: it ends no later than its length from now on. Needs
-- lock, held, ends and now.

local latest = held and now + string.match(held, '^[^|]+|(%d+)')
if held and latest < ends then
  ends = latest
  redis.call('HSET', lock, 'ends', ends)
end
