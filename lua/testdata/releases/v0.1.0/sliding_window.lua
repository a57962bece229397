-- Sliding window: at most `max` units in any `window`, counted one by one. sliding_windows.lua decides
-- several limits at once and limits that are counted by parts of their window; for one limit it gives the
-- same answers. This script is the short one for most uses.
--
-- The log begins with the moment of its birth, in microseconds since 1970. A number for each unit follows,
-- oldest first: the moment at which it was taken, in grains since the birth, both rounded up to whole grains
-- since 1970. A grain is 100 microseconds, and in windows of more than 7 hours the 2^28th part of the window.
-- A unit leaves when its window is over. A refused attempt takes no units; it writes only to drop units that
-- left long ago, many at once.
--
-- KEYS  1 log     list
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; absent or empty: 1; 0: take none, and
--                 answer whether one unit would be allowed
--       4 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry}, or -retry if no unit is
--         left; or {2}: nothing is decided, and sliding_windows has to, which makes the log anew
--       remaining  units left
--       stamp      the moment of admission in microseconds, for sliding_window_refund
--       resets     microseconds until the next unit leaves; 0 when there is none
--       retry      microseconds until the same cost fits

local log, max, window, cost, now = KEYS[1], ARGV[1] + 0, ARGV[2] * 1000, ARGV[3], ARGV[4]
cost, now = cost and tonumber(cost) or 1, now and tonumber(now)
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1
local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
local at = (now + -now % grain) / grain

-- How many units there are, how many have left, and when the next one leaves.
-- shared window_head
local head, count, gone = redis.call('LRANGE', log, '0', '1'), 0, 0
local birth, base, next = head[1], nil, nil
if birth then
  local begun = tonumber(birth) or 0
  base = (begun + -begun % grain) / grain
  -- A log by parts, one whose numbers become long, or one with units of the future: the clock was set back.
  if base == 0 or at - base > 2147483647 or redis.call('LINDEX', log, '-1') + base > at then
    return {2}
  end
  count = redis.call('LLEN', log) - 1
  next = (base + head[2]) * grain + window
end
-- end window_head
local renew = not next

if next and next <= now then
  -- shared window_gone
  -- Usually one unit has left. After a pause many have; they are read in chunks.
  local first, unit, chunk = next, nil, nil
  repeat
    gone = gone + 1
    if gone == 1 then
      unit = redis.call('LINDEX', log, '2')
    else
      if gone % 50 == 2 then
        chunk = redis.call('LRANGE', log, gone + 1, gone + 50)
      end
      unit = chunk[(gone - 2) % 50 + 1]
    end
    next = unit and (base + unit) * grain + window
  until not next or next > now
  local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
  -- end window_gone
  renew = moved
end

local left = max - count + gone
if left < need then
  local free = next
  if need - left > 1 then -- when the last of those that have to leave does
    free = (base + redis.call('LINDEX', log, gone + need - left)) * grain + window
  end
  if cost > 0 and gone > 50 then
    redis.call('LTRIM', log, gone, '-1')
    redis.call('LSET', log, '0', birth)
    redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000) -- as below
  end
  return left > 0 and {0, left, free - now} or now - free
end
if cost == 0 then
  return {1, left, now, 1, next and next - now or 0}
end

-- shared window_push
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
-- end window_push
-- A log must live for a window after each unit. To save most units the PEXPIRE, the log lives for a window
-- and a quarter after its head leaves, and the TTL is renewed when the head moves into another quarter. Since
-- the last renewal the head has then moved by less than a quarter, and a unit is taken before the head at
-- that time leaves.
next = next or at * grain + window
if renew then
  redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000)
end
return {1, left - cost, now, 1, next - now}
