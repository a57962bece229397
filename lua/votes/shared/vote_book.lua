-- Refuses a poll whose book is lost. Needs b, what HMGET says of ':parts' and others; voters, tally, book,
-- and audit or nil.

if not b[1] and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
