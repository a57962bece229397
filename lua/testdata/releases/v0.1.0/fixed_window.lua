-- Fixed window: at most `max` units in a `window` that begins with its first unit. fixed_windows.lua decides
-- several limits at once; for one limit it gives the same answers. This script is the short one for most
-- uses.
--
-- The clock decides when a window is over; the key's TTL only removes it. A refused attempt writes nothing.
--
-- KEYS  1 count   string: the window's end, in microseconds since 1970, and the units taken in it
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; absent or empty: 1; 0: take none, and
--                 answer whether one unit would be allowed
--       4 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry}, or -retry if no unit is
--         left; or {2}: nothing is decided, and fixed_windows has to, because the window begins later than
--         now
--       remaining  units left
--       stamp      the moment of admission in microseconds, for fixed_window_refund
--       retry      microseconds until the window ends, when the same cost fits
--       resets     microseconds until the window ends; 0 when no unit is taken in it

local key, max, window, cost, now = KEYS[1], ARGV[1], ARGV[2] * 1000, ARGV[3], ARGV[4]
cost, now = cost and tonumber(cost) or 1, now and tonumber(now)
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local over, taken, ends = nil, 0, nil -- ends: the text of over, in an open window, where it stays
local count = redis.call('GET', key)
if count then
  local text, units = string.match(count, '(%d+) (%d+)')
  over = text + 0
  if over - window > now then -- the clock was set back
    return {2}
  end
  if over > now then
    taken, ends = units + 0, text
  end
end
if not ends then
  over = now + window
end

local left = max - taken
if left < 1 then
  return now - over
end
if left < cost then
  return {0, left, over - now}
end
if cost == 0 then
  return {1, left, now, 1, ends and over - now or 0}
end
if ends then
  local units = taken + cost
  if units > 99999999999999 then -- longer numbers would lose digits as text
    units = string.format('%.0f', units)
  end
  redis.call('SET', key, ends .. ' ' .. units, 'KEEPTTL')
else
  -- The extra second covers a pause of the server between the script's start, from which a TTL counts, and
  -- its TIME.
  redis.call('SET', key, string.format('%.0f %.0f', over, cost), 'PX', ARGV[2] + 1000)
end
return {1, left - cost, now, 1, over - now}
