-- Refuses a poll whose book is lost. b is what HMGET says of ':parts' and others; audit may be nil.
-- needs: b, voters, tally, audit, book
-- returns: yes

if not b[1] and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
