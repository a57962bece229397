-- Sliding window: at most `max` units in any `window`, counted one by one. sliding_windows.lua decides
-- several limits at once and limits that are counted by parts of their window; for one limit it gives the
-- same answers. This script is the short one for most uses.
--
-- The log holds one number per unit, oldest first: the moment at which it was taken, in grains since 1970,
-- rounded up, modulo 2^32, as a signed number, which takes 6 bytes. A grain is 100 microseconds, and in
-- windows of more than 7 hours the 2^28th part of the window. A unit leaves when its window is over and all
-- units before it have left, so a clock that is set back admits nobody too early. A refused attempt takes no
-- units; it writes only to drop units that left long ago, many at once.
--
-- KEYS  1 log     list
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; absent or empty: 1; 0: take none, and
--                 answer whether one unit would be allowed
--       4 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry}
--       remaining  units left; below 0 when max was lowered below the units in the log
--       stamp      the moment of admission in microseconds, for sliding_window_refund
--       resets     microseconds until the next unit leaves; 0 when there is none
--       retry      microseconds until the same cost fits

local log, max, window = KEYS[1], ARGV[1], ARGV[2] * 1000
local cost, now = tonumber(ARGV[3]) or 1, tonumber(ARGV[4])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1
local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
local at = math.ceil(now / grain)

-- Counts the units that have left, and finds when the next one leaves. The age of a unit is less than 2^31
-- grains, and below 0 after the clock was set back. (Redis creates a script's functions anew in each call, so
-- the function is made only where it is needed.)
local count, gone = redis.call('LLEN', log), 0
local next, leaves
if count > 0 then
  local age = (at - redis.call('LINDEX', log, '0') + 2147483648) % 4294967296 - 2147483648
  next = (at - age) * grain + window
end
local renew = not next
if next and (next <= now or max - count < need - 1) then
  -- shared window_leaves
  leaves = function(unit, at, grain, window)
    local age = (at - unit + 2147483648) % 4294967296 - 2147483648
    return (at - age) * grain + window
  end
  -- end window_leaves
end

if next and next <= now then
  -- shared window_gone
  -- Usually one unit has left. After a pause many have; they are read in chunks.
  local first, unit, chunk = next, nil, nil
  repeat
    gone = gone + 1
    if gone == 1 then
      unit = redis.call('LINDEX', log, '1')
    else
      if gone % 50 == 2 then
        chunk = redis.call('LRANGE', log, gone, gone + 49)
      end
      unit = chunk[(gone - 2) % 50 + 1]
    end
    next = unit and leaves(unit, at, grain, window)
  until not next or next > now
  local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
  -- end window_gone
  renew = moved
end

local left = max - count + gone
if left < need then
  local free = next
  if need - left > 1 then
    -- Several units have to leave. The attempt fits when the last of them has left and, after the clock was
    -- set back, not before the head has.
    free = math.max(next, leaves(redis.call('LINDEX', log, gone + need - left - 1), at, grain, window))
  end
  if cost > 0 and gone > 50 then
    redis.call('LTRIM', log, gone, '-1')
    redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000) -- as below
  end
  return {0, left, free - now}
end
if cost == 0 then
  return {1, left, now, 1, next and next - now or 0}
end

-- shared window_push
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
-- end window_push
if gone == 1 then
  redis.call('LPOP', log)
elseif gone > 1 then
  redis.call('LTRIM', log, gone, '-1')
end
-- A log must live for a window after each unit. To save most units the PEXPIRE, the log lives for a window
-- and a quarter after its head leaves, and the TTL is renewed when the head moves into another quarter. Since
-- the last renewal the head has then moved by less than a quarter, and a unit is taken before the head at
-- that time leaves. The TTL does not count from now, because units taken before the clock was set back may
-- leave much later.
next = next or at * grain + window
if renew then
  redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000)
end
return {1, left - cost, now, 1, next - now}
