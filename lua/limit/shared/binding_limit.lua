-- Chooses the binding limit, the one that the answer reports. Needs i and cost; left, the units left in limit
-- i; wait, the microseconds until the cost fits, false when it fits now. Gives binding, remaining, retry.

if wait then
  if not retry or wait > retry then
    binding, remaining, retry = i, left, wait
  end
elseif not retry and (not binding or left - cost < remaining) then
  binding, remaining = i, left - cost
end
