-- span says how long a token bucket takes to gain units.
-- gives: span

-- The microseconds in which a bucket gains the units, units * window / max, rounded up. It is exact: all
-- numbers here are integers, and with units below 2 * max none reaches 2^53, as units * window might.
local function span(units, max, window)
  local rest = window % max
  local part = units * rest
  return units * ((window - rest) / max) + (part + -part % max) / max
end
