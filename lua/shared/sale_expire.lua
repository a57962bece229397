-- Gives the function expire. Needs sale, buyers, holds, reservations, outbox, and left, which it changes.

-- Returns one expired hold to the stock. ZREM goes first: a full Redis accepts it, and then accepts the rest,
-- because the script has already written.
local function expire(reservation)
  local record = redis.call('HGET', reservations, reservation)
  local who, back = string.match(record, '^held (%S+) (%d+) ')
  redis.call('ZREM', holds, reservation)
  redis.call('HSET', reservations, reservation, 'expired' .. string.sub(record, 5))
  if redis.call('HINCRBY', buyers, who, '-' .. back) <= 0 then
    redis.call('HDEL', buyers, who)
  end
  left = redis.call('HINCRBY', sale, 'left', back)
  redis.call('HINCRBY', sale, 'held', '-' .. back)
  redis.call('HINCRBY', sale, 'moves', '1')
  if outbox then
    redis.call('XADD', outbox, '*', 'event', 'expired', 'id', reservation, 'buyer', who, 'quantity', back)
  end
end
