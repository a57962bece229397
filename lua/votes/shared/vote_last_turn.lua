-- Keeps the voter's last turn after its record, at place of count, was removed from mine.
-- needs: place, count, none, slot, mine

if place == count then -- the voter's last turn is kept: no later vote may reuse it
  mine[#mine + 1] = string.sub(none, 1, 3) .. string.sub(slot, 4)
end
