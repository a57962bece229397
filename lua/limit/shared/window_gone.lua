-- Finds the units that have left a window. count is how many units the log has, first the oldest one, left
-- how many had left before. next is when the next one leaves, nil without one; before, when the one leaves
-- that stands behind those that had left before.
-- needs: left, first, count, log, base, window, now
-- gives: left, next, before

local unit = nil
if left == 0 then
  unit = first
elseif left < count then
  unit = redis.call('LINDEX', log, left + 1)
end
local next = unit and (base + unit) * 100 + window
local before = next
if next and next <= now then
  -- The last unit that has left is low or a later one, before high. The step doubles until it is too far.
  local low, high, step = left + 1, count + 1, 1
  unit = nil
  while high - low > 1 do
    local probe = low + step
    if probe >= high then
      probe = math.floor((low + high) / 2)
    end
    local found = redis.call('LINDEX', log, probe)
    if (base + found) * 100 + window <= now then
      low, step = probe, step * 2
    else
      high, unit, step = probe, found, count
    end
  end
  left, next = low, unit and (base + unit) * 100 + window
end
