-- Refuses a poll whose book is lost. state is the field ":state" of the book, or false; audit may be nil.
-- needs: state, voters, tally, audit, book
-- returns: yes

if not state and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
