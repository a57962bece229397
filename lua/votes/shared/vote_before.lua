-- Reads the ballots of the voter's records. Needs book, none, mine, number; choice and day, of the ballot
-- that the voter casts. Gives cast, the number of votes; had, of those for the choice; today, of those of the day;
-- choices, of the valid ones; kept, the records of votes; old, old_choice and old_weight, of the newest valid
-- one.

local cast, had, today, choices, kept, old, old_choice, old_weight = 0, 0, 0, {}, {}, none, '', ''
if #mine > 0 then
  local fields = {}
  for i, slot in ipairs(mine) do
    fields[i] = '#' .. number(slot)
  end
  local texts = redis.call('HMGET', book, unpack(fields))
  for i, slot in ipairs(mine) do
    if texts[i] then -- else it was undone
      local one, units, on = string.match(texts[i], '^(%S*) (%d+) ?(%d*)$')
      cast = cast + 1
      kept[cast] = slot
      if one == choice then
        had = had + 1
      end
      if on == day then
        today = today + 1
      end
      if units ~= '0' then
        choices[#choices + 1] = one
        old, old_choice, old_weight = slot, one, units
      end
    end
  end
end
