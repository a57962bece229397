-- Stores answers to operations. Needs operations, the key; expiry, until when it is kept, or false; answers,
-- each behind its field; remember, now; and ended, until when the records are kept.

local least = remember > 0 and now + remember or ended
if expiry and expiry + 0 >= least then
  redis.call('HSET', operations, unpack(answers))
else
  least = string.format('%.0f', least + math.floor(remember / 8))
  redis.call('HSET', operations, ':', least, unpack(answers))
  redis.call('PEXPIRE', operations, string.format('%.0f', least - now))
end
