-- Chooses the binding limit, the one that the answer reports. left is what is left in limit i; wait, the
-- microseconds until the cost fits, false when it fits now. For the first limit binding, remaining and retry
-- are nil.
-- needs: wait, retry, i, left, binding, remaining, cost
-- gives: retry, binding, remaining

if wait then
  if not retry or wait > retry then
    binding, remaining, retry = i, left, wait
  end
elseif not retry and (not binding or left - cost < remaining) then
  binding, remaining = i, left - cost
end
