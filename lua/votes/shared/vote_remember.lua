-- Keeps a key of answers for long enough for another one. Needs operations, the key; expiry, until when it is
-- kept, or false; remember, now; and ended, until when the records are kept.

local least = remember > 0 and now + remember or ended
if not expiry or expiry + 0 < least then
  least = string.format('%.0f', least + math.floor(remember / 8))
  redis.call('HSET', operations, ':', least)
  redis.call('PEXPIRE', operations, string.format('%.0f', least - now))
end
