-- Chooses the limit that an answer tells of. Needs i and cost; left, the units that limit i has left; wait,
-- the microseconds until the cost fits it, false when it fits now. Gives speaks, remaining, retry.

if wait then
  if not retry or wait > retry then
    speaks, remaining, retry = i, left, wait
  end
elseif not retry and (not speaks or left - cost < remaining) then
  speaks, remaining = i, left - cost
end
