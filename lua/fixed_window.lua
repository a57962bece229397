-- Fixed window: at most `max` units in a `window` that begins with its first unit, for one limit or several
-- at once, all or nothing. The clock decides when a window is over; the key's TTL only removes it. A refused
-- attempt writes nothing. But any attempt rewrites a window that begins later than now as one that begins
-- now: the clock was set back, and nobody knows how long before now its units were taken.
--
-- KEYS  1 count          string: the window's end, in microseconds since 1970, and the units taken in it;
--                        further limits have their counts in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent or empty: 1; 0:
--                        take none, and answer whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units taken
--       stamp      the moment of admission in microseconds, for fixed_window_refund
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

local binding, remaining, retry
local ends, taken, resets = {}, {}, {} -- ends holds the windows that are open

for i = 1, limits do
  local window, over = ARGV[i * 2] * 1000, now
  local count = redis.call('GET', KEYS[i])
  if count then
    ends[i], taken[i] = string.match(count, '(%d+) (%d+)')
    over = ends[i] + 0
  end
  if over <= now then
    ends[i], taken[i], over = nil, 0, now + window
  end
  if over - window > now then -- the clock was set back
    over = now + window
    ends[i] = string.format('%.0f', over)
    redis.call('SET', KEYS[i], ends[i] .. ' ' .. taken[i], 'PX', ARGV[i * 2] + 1000)
  end

  resets[i] = taken[i] + cost > 0 and over - now or 0
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
end

if retry then
  return {0, remaining, retry, binding}
end

if cost > 0 then
  for i = 1, limits do
    if ends[i] then
      redis.call('SET', KEYS[i], string.format('%s %.0f', ends[i], taken[i] + cost), 'KEEPTTL')
    else
      -- The extra second covers a pause of the server between the script's start, from which a TTL counts,
      -- and its TIME.
      redis.call('SET', KEYS[i], string.format('%.0f %.0f', now + ARGV[i * 2] * 1000, cost), 'PX',
        ARGV[i * 2] + 1000)
    end
  end
end
return {1, remaining, now, binding, resets[binding]}
