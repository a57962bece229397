-- lost names a part of the sale that was lost, or is nil. Where the outbox is not there, ends becomes 0: it
-- is made anew, and needs a TTL.
-- needs: buyers, holds, reservations, outbox, ends
-- gives: lost, ends

-- Each part has an entry '|' from the opening on, so that one that does not exist was lost.
local lost
if redis.call('EXISTS', buyers, holds, reservations, outbox or holds) < 4 then
  lost = redis.call('EXISTS', reservations) == 0 and 'reservations' or nil
  lost = redis.call('EXISTS', holds) == 0 and 'holds' or lost
  lost = redis.call('EXISTS', buyers) == 0 and 'buyers' or lost
  ends = 0
end
