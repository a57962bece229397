-- Sliding windows: at most `max` units in any `window`, counted one by one; for one or several limits, all or
-- nothing, and for one or several attempts of one moment. This is the short script; sliding_log decides where
-- it replies {2}, and gives the same answers.
--
-- The log has the units that count, oldest first: for each the moment at which it was taken, in grains of 100
-- microseconds since the log's base, rounded up. Each limit is a view of it: how many units at the head have
-- left its window. The log begins with a header: the limits of the attempt that wrote it and a colon; the base,
-- in grains since 1970; for each limit how many units have left. Behind a semicolon may follow what sliding_log
-- keeps for limits that other attempts have. A refused attempt writes nothing.
--
-- KEYS  1 log      list
--       2 parts    list: the log of sliding_parts. Here it is only looked at
-- ARGV  1 limits   as in the header: "100/60000 1000/3600000:", units and milliseconds
--       2 pattern  of the header behind them: "^(%d+)", " (%d+)" for each limit, and "(.*)$"
--       3 count    of limits
--       4 now      microseconds since 1970; empty: the server's clock
--       then max, window  units and milliseconds; for each limit
--       then cost, ...    units that an attempt takes, no more than the smallest max; 0 (of a single attempt):
--                         take none, and answer whether one unit would be allowed
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}, or -retry where
--         a single limit has nothing left; or {2}: nothing is decided, and sliding_log has to. For several
--         attempts an array with the answer to each, as if one had asked after the other at this moment. With a
--         single limit it begins with stamp and resets, and has remaining alone for an attempt that is allowed
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units that count
--       stamp      the moment of admission in microseconds, for sliding_settle
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one that
--                  is full for the longest time
--       resets     microseconds until the next unit leaves the binding limit; 0 when there is none
--       retry      microseconds until the same cost fits every limit

local log, limits, n, now = KEYS[1], ARGV[1], ARGV[3] + 0, tonumber(ARGV[4])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local head = redis.call('LRANGE', log, '0', '1')
local text, first = head[1], head[2]
local base, count, numbers, rest, longest = nil, 0, nil, '', 0
if text then
  if string.sub(text, 1, #limits) ~= limits then
    return {2}
  end
  numbers = {string.match(text, ARGV[2], #limits + 1)}
  base, rest = numbers[1] + 0, numbers[n + 2]
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  return {2}
end
local at = (now + -now % 100) / 100
if text then
  -- One without units, beside a log by parts; one with units of the future (the clock was set back); one whose
  -- numbers are longer than they need be.
  if not first or redis.call('LINDEX', log, '-1') + base > at or at - base > 2147483647 and first - 1073741824 > 0 then
    return {2}
  end
  count = redis.call('LLEN', log) - 1
  if rest ~= '' then
    local ends, most, window = string.match(rest, '^;(%d+) (%d+) (%d+)')
    if now >= ends * 1000 or count >= most + 0 then
      return {2}
    end
    longest = window * 1000
  end
else
  base = at
end

-- Of each limit: free units, how many have left, when the next one leaves.
local free, gone, leaves = {}, {}, {}
local drop, moved, renew = count, false, not text
local widest, width -- the limit with the longest window
for i = 1, n do
  local window = ARGV[4 + i * 2] * 1000
  local left, unit = text and numbers[i + 1] + 0 or 0, nil
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
    moved = true
  end
  if not widest or window > width then
    widest, width = i, window
    renew = not next or before ~= next and math.floor(before / window * 4) ~= math.floor(next / window * 4)
  end
  free[i], gone[i], leaves[i] = ARGV[3 + i * 2] - count + left, left, next
  if left < drop then
    drop = left
  end
end

local from = 5 + n * 2
local several, taken, replies = #ARGV > from, 0, nil
if several then
  replies = n == 1 and {now, (leaves[1] or at * 100 + width) - now} or {}
end
for a = from, #ARGV do
  local cost = ARGV[a] + 0
  local need = cost > 0 and cost or 1
  local binding, remaining, retry
  for i = 1, n do
    local left = free[i] - taken
    if left < need then
      local place = gone[i] + need - left -- of the last unit that has to leave
      local leave
      if place == gone[i] + 1 and leaves[i] then
        leave = leaves[i]
      elseif place > count then -- one that was taken at this moment
        leave = at * 100 + ARGV[4 + i * 2] * 1000
      else
        leave = (base + redis.call('LINDEX', log, place)) * 100 + ARGV[4 + i * 2] * 1000
      end
      if not retry or leave > retry then
        binding, remaining, retry = i, left, leave
      end
    elseif not retry and (not binding or left - cost < remaining) then
      binding, remaining = i, left - cost
    end
  end
  local reply
  if retry then
    reply = (n > 1 or remaining > 0) and {0, remaining, retry - now, binding} or now - retry
  elseif several and n == 1 then
    reply = remaining
  else
    local leave = leaves[binding] or (cost > 0 or taken > 0) and at * 100 + ARGV[4 + binding * 2] * 1000 or now
    reply = {1, remaining, now, binding, leave - now}
  end
  if not retry then
    taken = taken + cost
  end
  if not several then
    replies = reply
  else
    replies[#replies + 1] = reply
  end
end
if taken == 0 then
  return replies
end

-- The first command is one that a full Redis refuses. A number as text is cheaper than one that redis.call
-- makes a text of.
local unit, header = string.format('%d', at - base), nil
if rest ~= '' then
  drop = 0 -- other limits need the units: sliding_log drops them
elseif drop == count then -- none counts any more, so the log begins anew
  base, unit, moved = at, '0', true
end
if text then
  redis.call('RPUSH', log, unit)
else
  header = string.format('%s%.0f', limits, base) .. string.rep(' 0', n)
  redis.call('RPUSH', log, header, unit)
end
if taken > 1 then
  local units = {}
  for place = 1, math.min(taken - 1, 1000) do -- a call takes only so many arguments
    units[place] = unit
  end
  for place = 2, taken, 1000 do
    redis.call('RPUSH', log, unpack(units, 1, math.min(taken - place + 1, 1000)))
  end
end
if text and moved then
  -- The place of the last unit that has left is the header's then.
  if drop == 1 then
    redis.call('LPOP', log)
  elseif drop > 0 then
    redis.call('LTRIM', log, drop, '-1')
  end
  numbers[1] = string.format('%.0f', base)
  for i = 1, n do
    numbers[i + 1] = gone[i] - drop
  end
  redis.call('LSET', log, '0', limits .. table.concat(numbers, ' ', 1, n + 1) .. rest)
end
-- A log must live for the longest window after each unit. To save most units the PEXPIRE, it lives for a
-- window and a quarter after its oldest unit leaves, and the TTL is renewed when that moment moves into
-- another quarter: it has moved by less than a quarter since, and a unit is taken before it.
if renew then
  local next = leaves[widest] or at * 100 + width
  redis.call('PEXPIRE', log, math.ceil((next - now + math.max(longest, width) * 1.25) / 1000) + 1000)
end
return replies
