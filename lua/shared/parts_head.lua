-- Reads what has left a log by parts. Needs log, max, need, part, window, now, numbers (the first ones of the
-- log), base (the number of the birth's part), count (the units in the log) and gone, 0. Sets count, the
-- units that are left; gone, the numbers that have left; next, when the head leaves; leaves, when the next
-- unit does; and lacks, when enough have left for need: nil without one.

-- Usually the first two parts are enough. After a pause more are needed; they are read in growing chunks.
local from, size = 0, 4
local function number(n)
  if n >= from + #numbers then
    size, from = math.min(size * 2, 128), n - (n + 1) % 2 -- a chunk has whole pairs
    numbers = redis.call('LRANGE', log, from, from + size - 1)
  end
  return numbers[n - from + 1]
end
local first = number(1)
while first and (base + first) * part + window <= now do
  count, gone = count - number(gone + 2), gone + 2
  first = number(gone + 1)
end
next = first and (base + first) * part + window
local lacking, n = need - max + count, gone
if count > 0 then
  while number(n + 2) == '0' do -- all units of the part were given back
    n = n + 2
  end
  leaves = (base + number(n + 1)) * part + window
end
while lacking > 0 do
  lacks = (base + number(n + 1)) * part + window
  lacking, n = lacking - number(n + 2), n + 2
end
