-- Gives place, where among the voter's records one stands, or nil. Needs mine and slot.

local place
for i, one in ipairs(mine) do
  if one == slot then
    place = i
  end
end
