-- Refuses a poll whose book is lost. Needs state, the field ":state" of the book, or false; voters, tally,
-- book, and audit or nil.

if not state and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
