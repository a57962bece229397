-- Refuses a vote that the rules do not allow. Needs the rules, as vote_rules gives them; now, b, parts; cast,
-- had, today and choices, as vote_before gives them; answer. Gives changing, whether the vote replaces the
-- voter's only one. Returns from the script, or the function, where there is an answer.

local changing = change == '1' and cast == 1 and #choices == 1 and had == 0
if now < opens then
  return answer('not_open', '0', cast, opens - now, choices)
elseif closes > 0 and now >= closes then
  return answer('closed', '0', cast, '0', choices)
elseif parts == '0' or (not b[1] and parts ~= '1') then
  return answer('spread', '0', '0', '0', {})
elseif per_day > 0 and (now < begins or now >= ends) then
  return answer('day_rolled', '0', cast, now, choices)
elseif not changing and (had >= per_choice or (cast >= max and max == 1)) then
  return answer('duplicate', '0', cast, '0', choices)
elseif not changing and cast >= max then
  return answer('quota', '0', cast, '0', choices)
elseif not changing and per_day > 0 and today >= per_day then
  return answer('quota', '0', cast, ends - now, choices)
end
