-- Gives the function tell, which appends an event to the audit stream. Needs audit, voters, book, and begun,
-- whether the stream has begun by the book.

-- A stream that has begun and is not there is lost: it is not begun anew, so that its loss is noticed.
local function tell(...)
  if begun then
    redis.call('XADD', audit, 'NOMKSTREAM', '*', ...)
  else
    redis.call('HSET', book, ':audit', '1')
    redis.call('XADD', audit, '*', ...)
  end
  redis.call('PEXPIRE', audit, redis.call('PTTL', voters))
end
