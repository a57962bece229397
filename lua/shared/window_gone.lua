-- Counts in gone the units of a log that have left, of which there is one at least. Needs next, when the head
-- leaves; gone, 0; log, base, grain, window, now. Gives next, when the new head leaves, or nil; and moved,
-- whether that is in another quarter of a window.

-- Usually one unit has left. After a pause many have; they are read in chunks.
local first, unit, chunk = next, nil, nil
repeat
  gone = gone + 1
  if gone == 1 then
    unit = redis.call('LINDEX', log, '2')
  else
    if gone % 50 == 2 then
      chunk = redis.call('LRANGE', log, gone + 1, gone + 50)
    end
    unit = chunk[(gone - 2) % 50 + 1]
  end
  next = unit and (base + unit) * grain + window
until not next or next > now
local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
