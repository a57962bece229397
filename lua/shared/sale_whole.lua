-- Gives lost, the name of a part of the sale that was lost, or nil. Needs buyers, holds, reservations.

-- Each part has an entry '|' from the opening on, so that one that does not exist was lost.
local lost
if redis.call('EXISTS', buyers, holds, reservations) < 3 then
  lost = redis.call('EXISTS', holds) == 0 and 'holds' or 'reservations'
  lost = redis.call('EXISTS', buyers) == 0 and 'buyers' or lost
end
