-- tell appends an event about a record to the audit stream. begun says whether the stream has begun by the book.
-- needs: begun, audit, book, voters
-- gives: tell

-- A stream that has begun and is not there is lost: it is not begun anew, so that its loss is noticed.
local function tell(slot, ...)
  local one, two, three, four = string.byte(slot, 1, 4)
  slot = string.format('%.0f', ((one * 256 + two) * 256 + three) * 256 + four)
  if begun then
    redis.call('XADD', audit, 'NOMKSTREAM', '*', 'slot', slot, ...)
  else
    redis.call('HSET', book, ':audit', '1')
    redis.call('XADD', audit, '*', 'slot', slot, ...)
  end
  redis.call('PEXPIRE', audit, redis.call('PTTL', voters))
end
