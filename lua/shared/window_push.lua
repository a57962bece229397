-- Writes cost units of the moment now into a log, and drops those that have left. Needs log, birth, base, at,
-- cost, 1 or more, gone, now; next, which is nil when no unit is left.

-- The first command is one that a full Redis refuses. The place of the last unit that has left is the
-- header's then. A number as text is cheaper than one that redis.call makes a text of.
local unit = string.format('%d', next and at - base or 0)
if next then
  redis.call('RPUSH', log, unit)
else
  redis.call('RPUSH', log, now, unit)
end
if cost > 1 then
  local units = {}
  for n = 1, math.min(cost - 1, 1000) do -- a call takes only so many arguments
    units[n] = unit
  end
  for from = 2, cost, 1000 do
    redis.call('RPUSH', log, unpack(units, 1, math.min(cost - from + 1, 1000)))
  end
end
if not next then
  if gone > 0 then
    redis.call('LTRIM', log, gone + 1, '-1')
  end
elseif gone > 0 then
  if gone == 1 then
    redis.call('LPOP', log)
  else
    redis.call('LTRIM', log, gone, '-1')
  end
  redis.call('LSET', log, '0', birth)
end
