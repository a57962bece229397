-- Keeps the voter's last turn where its record, the one at place of count, was taken out of mine. Needs slot,
-- none.

if place == count then -- the voter's last turn: it is kept, so that nobody gets it again
  mine[#mine + 1] = string.sub(none, 1, 3) .. string.sub(slot, 4)
end
