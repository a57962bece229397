-- Splits the calls that received an answer, words separated by spaces, into this call and the others. told
-- says whether this call is among them.
-- needs: callers, call
-- gives: others, told

local others, told = {}, false
for one in string.gmatch(callers, '%S+') do
  if one == call then
    told = true
  else
    others[#others + 1] = one
  end
end
