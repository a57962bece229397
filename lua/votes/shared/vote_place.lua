-- Gives place, the position of slot among the voter's records, or nil. Needs mine and slot.

local place
for i, one in ipairs(mine) do
  if one == slot then
    place = i
  end
end
