-- place is the position of slot among the voter's records, or nil.
-- needs: mine, slot
-- gives: place

local place
for i, one in ipairs(mine) do
  if one == slot then
    place = i
  end
end
