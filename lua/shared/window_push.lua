-- Appends cost units, taken at the moment at, to a log. Needs log, at, cost, 1 or more.

local unit = (at + 2147483648) % 4294967296 - 2147483648
redis.call('RPUSH', log, unit)
if cost > 1 then
  local units = {}
  for n = 1, math.min(cost - 1, 1000) do -- unpack is limited
    units[n] = unit
  end
  for from = 2, cost, 1000 do
    redis.call('RPUSH', log, unpack(units, 1, math.min(cost - from + 1, 1000)))
  end
end
