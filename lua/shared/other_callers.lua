-- Splits the calls that received an answer into this call and the rest. Needs callers, words separated by
-- spaces, and call. Gives others and told, whether this call is among them.

local others, told = {}, false
for one in string.gmatch(callers, '%S+') do
  if one == call then
    told = true
  else
    others[#others + 1] = one
  end
end
