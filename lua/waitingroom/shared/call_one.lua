-- call_one calls a place: its holder may enter from now on.
-- needs: now, here, seen, taken, called, high, grace
-- gives: call_one, high

local function call_one(place)
  redis.call('SETBIT', here, place, '0')
  redis.call('SETBIT', seen, place, '0')
  redis.call('SETRANGE', taken, place, '\255')
  redis.call('ZADD', called, now + grace, place)
  high = math.max(high, place)
end
