-- tell appends an event to the audit stream. begun says whether the stream has begun by the book.
-- needs: begun, audit, book, voters
-- gives: tell

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
