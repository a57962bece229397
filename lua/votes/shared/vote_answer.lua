-- Gives the function answer.

-- The answer as one text: an array costs the server four times as much.
local function answer(reason, replayed, cast, number, choices)
  local text = reason .. ' ' .. replayed .. ' ' .. cast .. ' ' .. number
  if #choices == 0 then
    return text
  end
  return text .. ' ' .. table.concat(choices, ' ')
end
