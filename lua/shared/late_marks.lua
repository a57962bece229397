-- Adds a call to those that were undone and may still arrive, of which the last 16 are kept. call is empty
-- where it is none; marks are the calls, each with ' -' before it.
-- needs: call, marks
-- gives: marks

if call ~= '' and not string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
  marks = marks .. ' -' .. call
end
local _, taken_back = string.gsub(marks, ' ', ' ')
if taken_back > 16 then -- so that a record stays short
  marks = string.gsub(marks, ' %S+', '', taken_back - 16)
end
