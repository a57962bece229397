-- Counts in gone the units that have left a log: one or more. Needs next, when the head leaves; gone, 0; log,
-- leaves, at, grain, window, now. Gives next, when the new head leaves, or nil; and moved, whether next falls
-- into another quarter of a window.

-- Usually one unit has left. After a pause many have; they are read in chunks.
local first, unit, chunk = next, nil, nil
repeat
  gone = gone + 1
  if gone == 1 then
    unit = redis.call('LINDEX', log, '1')
  else
    if gone % 50 == 2 then
      chunk = redis.call('LRANGE', log, gone, gone + 49)
    end
    unit = chunk[(gone - 2) % 50 + 1]
  end
  next = unit and leaves(unit, at, grain, window)
until not next or next > now
local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
