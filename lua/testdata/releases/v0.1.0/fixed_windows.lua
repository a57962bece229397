-- Fixed windows: at most `max` units in a `window` that begins with its first unit, for several limits at
-- once, all or nothing. fixed_window.lua decides a single limit, on the same count, and leaves it to this one
-- when the clock was set back. The clock decides when a window is over; the key's TTL only removes it. A
-- refused attempt writes nothing. But any attempt rewrites a window that begins later than now as one that
-- begins now: the clock was set back, and nobody knows how long before now its units were taken. And any
-- attempt lets a window that is not open begin together with the shorter open window that has most units, and
-- with these units, if that one began when the former window was over: the limit is new, or was left out
-- then.
--
-- KEYS  1 count          string, as fixed_window writes it: the window's end, in microseconds since 1970, and
--                        the units taken in it; further limits have their counts in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on. An empty
--                        max marks a limit of the past, whose units the others take over; these come last
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
local ends, taken, resets = {}, {}, {} -- ends are 0 without a window

-- The extra second covers a pause of the server between the script's start, from which a TTL counts, and its
-- TIME. A key outlives its window by the longest shorter one, so that a missing key means that no attempt of
-- such a window which is still open was counted in it.
local function write(i)
  local window, shorter = ARGV[i * 2] + 0, 0
  for j = 1, limits do
    local other = ARGV[j * 2] + 0
    if other < window and other > shorter then
      shorter = other
    end
  end
  redis.call('SET', KEYS[i], string.format('%.0f %.0f', ends[i], taken[i]), 'PX',
    math.ceil((ends[i] - now) / 1000) + shorter + 1000)
end

for i = 1, limits do
  local count = redis.call('GET', KEYS[i])
  ends[i], taken[i] = 0, 0
  if count then
    local over, units = string.match(count, '(%d+) (%d+)')
    ends[i], taken[i] = over + 0, units + 0
    if ends[i] - ARGV[i * 2] * 1000 > now then -- the clock was set back
      ends[i] = now + ARGV[i * 2] * 1000
      write(i)
    end
  end
end

for i = 1, limits do
  local max, window = tonumber(ARGV[i * 2 - 1]), ARGV[i * 2] * 1000
  if not max then
    break
  end
  if ends[i] <= now then
    local most, from = 0, nil
    for j = 1, limits do
      local other = ARGV[j * 2] * 1000
      if other < window and ends[j] > now and ends[j] - other >= ends[i] and taken[j] > most then
        most, from = taken[j], ends[j] - other
      end
    end
    if from then
      ends[i], taken[i] = from + window, most
      write(i)
    end
  end

  local open = ends[i] > now
  local over, used = open and ends[i] or now + window, open and taken[i] or 0
  resets[i] = used + cost > 0 and over - now or 0
  local left = max - used
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

for i = 1, cost > 0 and limits or 0 do
  if ARGV[i * 2 - 1] == '' then
    break
  elseif ends[i] > now then
    redis.call('SET', KEYS[i], string.format('%.0f %.0f', ends[i], taken[i] + cost), 'KEEPTTL')
  else
    ends[i], taken[i] = now + ARGV[i * 2] * 1000, cost
    write(i)
  end
end
return {1, remaining, now, binding, resets[binding]}
