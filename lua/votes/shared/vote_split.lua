-- Splits a bucket in two. Needs whole, its records; from, its number; half. Gives stay and go, the records of
-- the two.

local stay, go = {}, {}
for i = 1, #whole, 16 do
  local record = string.sub(whole, i, i + 15)
  local one, two, three, four = string.byte(record, 1, 4)
  if (((one * 256 + two) * 256 + three) * 256 + four) % (2 * half) == from then
    stay[#stay + 1] = record
  else
    go[#go + 1] = record
  end
end
