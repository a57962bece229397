-- Gives the function leaves: when a unit leaves a log, in microseconds. Needs a local of that name.

leaves = function(unit, at, grain, window)
  local age = (at - unit + 2147483648) % 4294967296 - 2147483648
  return (at - age) * grain + window
end
