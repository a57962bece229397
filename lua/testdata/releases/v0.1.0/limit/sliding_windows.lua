-- Sliding windows: at most `max` units in any `window`, counted one by one, for two or more limits, all or
-- nothing. All limits are views of one log: see sliding_window. This is the short script for the limits of
-- most guards; sliding_log decides where it replies {2}, and gives the same answers. A refused attempt writes
-- nothing.
--
-- KEYS  1 log      list, as in sliding_window
-- ARGV  1 limits   as in the header: "100/60000 1000/3600000:", units and milliseconds
--       2 pattern  of the header behind them: "^(%d+)", " (%d+)" for each limit, and "(.*)$"
--       3 now      microseconds since 1970; empty: the server's clock
--       4 cost     units that this attempt takes, no more than the smallest max; 0: take none, and answer
--                  whether one unit would be allowed
--       then max, window  units and milliseconds; for each limit
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}; or {2}:
--         nothing is decided, and sliding_log has to
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units that
--       count stamp      the moment of admission in microseconds, for sliding_settle
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one that
--                  is full for the longest time
--       resets     microseconds until the next unit leaves the binding limit; 0 when there is none
--       retry      microseconds until the same cost fits every limit

local log, limits, now, cost = KEYS[1], ARGV[1], tonumber(ARGV[3]), ARGV[4] + 0
local n = (#ARGV - 4) / 2
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local head = redis.call('LRANGE', log, '0', '1')
local text, first = head[1], head[2]
local at = (now + -now % 100) / 100
local base, count, numbers, rest, longest = at, 0, {}, '', 0
if text then
  if string.sub(text, 1, #limits) ~= limits then
    return {2}
  end
  numbers = {string.match(text, ARGV[2], #limits + 1)}
  base, rest, count = numbers[1] + 0, numbers[n + 2], redis.call('LLEN', log) - 1
  if rest ~= '' then
    local ends, most, widest = string.match(rest, '^;(%d+) (%d+) (%d+)')
    if now >= ends * 1000 or count >= most + 0 then
      return {2}
    end
    longest = widest * 1000
  end
  -- One with units of the future (the clock was set back); one whose numbers are longer than they need be.
  if redis.call('LINDEX', log, '-1') + base > at or at - base > 2147483647 and first - 1073741824 > 0 then
    return {2}
  end
end

local need = cost > 0 and cost or 1
local binding, remaining, retry, resets
local drop, moved, renew, expires = count, false, false, nil
local widest = 0 -- of the limits
for i = 1, n do
  local max, window, left = ARGV[3 + i * 2] + 0, ARGV[4 + i * 2] * 1000, (numbers[i + 1] or 0) + 0
  local had = left
  -- shared window_gone
  local unit = nil
  if left == 0 then
    unit = first
  elseif left < count then
    unit = redis.call('LINDEX', log, left + 1)
  end
  local next = unit and (base + unit) * 100 + window
  local before = next
  if next and next <= now then
    -- The last unit that has left is low or a later one, before high. The step doubles until it is too far.
    local low, high, step = left + 1, count + 1, 1
    unit = nil
    while high - low > 1 do
      local probe = low + step
      if probe >= high then
        probe = math.floor((low + high) / 2)
      end
      local found = redis.call('LINDEX', log, probe)
      if (base + found) * 100 + window <= now then
        low, step = probe, step * 2
      else
        high, unit, step = probe, found, count
      end
    end
    left, next = low, unit and (base + unit) * 100 + window
  end
  -- end window_gone
  if left ~= had then
    numbers[i + 1], moved = left, true
  end
  if left < drop then
    drop = left
  end
  if window > widest then
    widest, expires = window, next or at * 100 + window
    renew = not next or before ~= next and math.floor(before / window * 4) ~= math.floor(next / window * 4)
  end
  local free = max - count + left
  if free < need then
    local leave = next
    if need - free > 1 then -- the place of the last unit that has to leave
      leave = (base + redis.call('LINDEX', log, left + need - free)) * 100 + window
    end
    if not retry or leave > retry then
      binding, remaining, retry = i, free, leave
    end
  elseif not retry and (not binding or free - cost < remaining) then
    binding, remaining, resets = i, free - cost, next or cost > 0 and at * 100 + window or now
  end
end
if retry then
  return {0, remaining, retry - now, binding}
end
local reply = {1, remaining, now, binding, resets - now}
if cost == 0 then
  return reply
end

-- The first command is one that a full Redis refuses. A number as text is cheaper than one that redis.call
-- makes a text of.
local entry = string.format('%d', at - base)
if rest ~= '' then
  drop = 0 -- sliding_log drops what other limits need
elseif drop > 0 and drop == count then -- none counts any more, so the log begins anew
  base, entry, moved = at, '0', true
end
if text then
  redis.call('RPUSH', log, entry)
else
  redis.call('RPUSH', log, string.format('%s%.0f', limits, base) .. string.rep(' 0', n), entry)
end
if cost > 1 then
  local units = {}
  for unit = 1, math.min(cost - 1, 1000) do -- a call takes only so many arguments
    units[unit] = entry
  end
  for unit = 2, cost, 1000 do
    redis.call('RPUSH', log, unpack(units, 1, math.min(cost - unit + 1, 1000)))
  end
end
if text and (moved or drop > 0) then
  -- The place of the last unit that has left is the header's then.
  if drop == 1 then
    redis.call('LPOP', log)
  elseif drop > 0 then
    redis.call('LTRIM', log, drop, '-1')
  end
  numbers[1] = string.format('%.0f', base)
  for i = 2, n + 1 do
    numbers[i] = numbers[i] - drop
  end
  redis.call('LSET', log, '0', limits .. table.concat(numbers, ' ', 1, n + 1) .. rest)
end
-- As in sliding_window: the TTL is renewed four times per window.
if renew then
  redis.call('PEXPIRE', log, math.ceil((expires - now + math.max(longest, widest) * 1.25) / 1000) + 1000)
end
return reply
