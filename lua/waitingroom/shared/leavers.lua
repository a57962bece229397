-- Ends the passes whose time is over, and the calls that nobody has followed; some at a time, so places are
-- never thought to be free that are not. free is how many there are.
-- needs: now, room, inside, passes, called, taken, limit, capacity
-- gives: free

local over = redis.call('ZRANGEBYSCORE', inside, '-inf', now, 'LIMIT', '0', '500')
if #over > 0 then
  redis.call('ZREM', inside, unpack(over))
  redis.call('HDEL', passes, unpack(over))
end
over = redis.call('ZRANGEBYSCORE', called, '-inf', now, 'LIMIT', '0', '500')
if #over > 0 then
  redis.call('ZREM', called, unpack(over))
  redis.call('HINCRBY', room, 'missed', #over)
  for _, place in ipairs(over) do -- who comes back later is the next
    redis.call('SETRANGE', taken, place, '\0')
  end
end
local free = (limit ~= '' and limit or capacity) - redis.call('ZCARD', inside) - redis.call('ZCARD', called)
