-- Finds the units that have left a window. count is how many units the log has, left how many had left before,
-- first the one behind those. next is when the next one leaves, false without one; before, what it was.
-- needs: left, first, count, log, base, window, now
-- gives: left, first, next, before

local next = left < count and (base + first) * 100 + window
local before = next
if next and next <= now then
  -- The last unit that has left is low or a later one, before high. The step doubles until it is too far.
  local low, high, step = left + 1, count + 1, 1
  next = false
  while high - low > 1 do
    local probe = low + step
    if probe >= high then
      probe = math.floor((low + high) / 2)
    end
    local found = redis.call('LINDEX', log, string.format('%d', probe))
    local leaves = (base + found) * 100 + window
    if leaves <= now then
      low, step = probe, step * 2
    else
      high, first, next, step = probe, found, leaves, count
    end
  end
  left = low
end
