-- Fixed windows: at most `max` units in a `window` that begins with its first unit; for one or several
-- limits, all or nothing. The clock decides when a window is over; the key's TTL only removes it. A refused
-- attempt writes nothing. But any attempt lets a window that begins later than now begin now: the clock was
-- set back, and nobody knows how long before now its units were taken.
--
-- KEYS  1 count          string: the window's end, in microseconds since 1970, and the units taken in it;
--                        further limits have their counts in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent or empty: 1; 0:
--                        take none, and answer whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns "remaining stamp resets limit" when allowed, else {0, remaining, retry, limit}, or -retry
--         where a single limit has nothing left
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units taken
--       stamp      the moment of admission in microseconds, for fixed_window_settle
--       retry      microseconds until the same cost fits every limit
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one whose
--                  window ends last
--       resets     microseconds until the window ends; 0 when no unit is taken in it

local limits = #KEYS
local cost, now = tonumber(ARGV[limits * 2 + 1]) or 1, tonumber(ARGV[limits * 2 + 2])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

local binding, remaining, retry, resets
local ends, taken = {}, {} -- ends: the text of a window's end, where it is open
for i = 1, limits do
  local window = ARGV[i * 2] * 1000
  local count, over = redis.call('GET', KEYS[i]), nil
  taken[i] = 0
  if count then
    local text, units = string.match(count, '(%d+) (%d+)')
    over = text + 0
    if over - window > now then
      over = now + window
      text = string.format('%.0f', over)
      redis.call('SET', KEYS[i], text .. ' ' .. units, 'PX', ARGV[i * 2] + 1000)
    end
    if over > now then
      ends[i], taken[i] = text, units + 0
    end
  end
  if not ends[i] then
    over = now + window
  end

  local left = ARGV[i * 2 - 1] - taken[i]
  local wait = left < need and over - now
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit
  if binding == i then
    resets = taken[i] + cost > 0 and over - now or 0
  end
end
if retry then
  return (limits > 1 or remaining > 0) and {0, remaining, retry, binding} or -retry
end

for i = 1, cost > 0 and limits or 0 do
  local units = taken[i] + cost
  if units > 99999999999999 then -- longer numbers would lose digits as text
    units = string.format('%.0f', units)
  end
  if ends[i] then
    redis.call('SET', KEYS[i], ends[i] .. ' ' .. units, 'KEEPTTL')
  else
    -- The extra second covers a pause of the server between the script's start, from which a TTL counts, and
    -- its TIME.
    local count = string.format('%.0f ', now + ARGV[i * 2] * 1000) .. units
    redis.call('SET', KEYS[i], count, 'PX', ARGV[i * 2] + 1000)
  end
end
return string.format('%d %d %d %d', remaining, now, resets, binding)
