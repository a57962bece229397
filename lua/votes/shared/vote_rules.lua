-- Reads the rules of a poll. Needs rules. Gives max, per_choice, change, opens, closes, per_day, begins and
-- ends; and day, that of ballots that are cast now, empty where the rules have none.

local max, per_choice, change, opens, closes, per_day, begins, ends = 1, 1, '0', 0, 0, 0, 0, 0
local day = ''
if rules ~= '' then
  max, per_choice, change, opens, closes, per_day, begins, ends =
    string.match(rules, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if per_day ~= '0' then
    day = begins
  end
  max, per_choice, opens, closes = max + 0, per_choice + 0, opens + 0, closes + 0
  per_day, begins, ends = per_day + 0, begins + 0, ends + 0
end
