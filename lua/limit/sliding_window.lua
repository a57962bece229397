-- Sliding window: at most `max` units in any `window`, counted one by one; for one or several attempts of one
-- moment. This is the short script for one limit; sliding_log decides where it replies {2}, and gives the
-- same answers.
--
-- The log has the units that count, oldest first: for each the moment at which it was taken, in grains of 100
-- microseconds since the log's base, rounded up. A limit is a view of it: how many units at the head have
-- left its window. The log begins with a header: the limits of the attempt that wrote it and a colon; the
-- base, in grains since 1970; for each limit how many units have left. Behind a semicolon may follow what
-- sliding_log keeps for limits that other attempts have. A refused attempt writes nothing.
--
-- KEYS  1 log     list
-- ARGV  1 limit   as in the header: "100/60000:", units and milliseconds
--       2 now     microseconds since 1970; empty: the server's clock
--       3 max     units
--       4 window  milliseconds
--       then cost, ...  units that an attempt takes, no more than max; 0 (of a single attempt): take none,
--                       and answer whether one unit would be allowed
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry, 1}, or -retry where
--         nothing is left; or {2}: nothing is decided, and sliding_log has to. For several attempts {stamp,
--         resets, answer, ...}, as if one had asked after the other at this moment, where an attempt that is
--         allowed has remaining for an answer
--       remaining  units left; below 0 when max was lowered below the units that count
--       stamp      the moment of admission in microseconds, for sliding_settle
--       resets     microseconds until the next unit leaves; 0 when there is none
--       retry      microseconds until the same cost fits

local log, limit, now, max, window = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] + 0, ARGV[4] * 1000
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local head = redis.call('LRANGE', log, '0', '1')
local text, first = head[1], head[2]
local at = (now + -now % 100) / 100
local base, left, count, rest, longest = at, 0, 0, '', window
if text then
  if string.sub(text, 1, #limit) ~= limit then
    return {2}
  end
  base, left, rest = string.match(text, '^(%d+) (%d+)(.*)$', #limit + 1)
  base, left, count = base + 0, left + 0, redis.call('LLEN', log) - 1
  if rest ~= '' then
    local ends, most, widest = string.match(rest, '^;(%d+) (%d+) (%d+)')
    if now >= ends * 1000 or count >= most + 0 then
      return {2}
    end
    longest = math.max(window, widest * 1000)
  end
  -- One with units of the future (the clock was set back); one whose numbers are longer than they need be.
  if redis.call('LINDEX', log, '-1') + base > at or at - base > 2147483647 and first - 1073741824 > 0 then
    return {2}
  end
end
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

local free = max - count + left
local several, taken, replies = #ARGV > 5, 0, nil
if several then
  replies = {now, (next or at * 100 + window) - now}
end
for a = 5, #ARGV do
  local cost = ARGV[a] + 0
  local need, remaining, reply = cost > 0 and cost or 1, free - taken, nil
  if remaining < need then
    local place, leave = left + need - remaining, nil -- of the last unit that has to leave
    if place == left + 1 and next then
      leave = next
    elseif place > count then -- one that was taken at this moment
      leave = at * 100 + window
    else
      leave = (base + redis.call('LINDEX', log, place)) * 100 + window
    end
    reply = remaining > 0 and {0, remaining, leave - now, 1} or now - leave
  else
    taken, remaining = taken + cost, remaining - cost
    local leave = next or cost > 0 and at * 100 + window or now
    reply = several and remaining or {1, remaining, now, 1, leave - now}
  end
  if several then
    replies[#replies + 1] = reply
  else
    replies = reply
  end
end
if taken == 0 then
  return replies
end

-- The first command is one that a full Redis refuses. A number as text is cheaper than one that redis.call
-- makes a text of.
local entry = string.format('%d', at - base)
local drop = rest == '' and left or 0 -- sliding_log drops what other limits need
if drop > 0 and drop == count then -- none counts any more, so the log begins anew
  base, entry = at, '0'
end
if text then
  redis.call('RPUSH', log, entry)
else
  redis.call('RPUSH', log, limit .. string.format('%.0f 0', base), entry)
end
if taken > 1 then
  local units = {}
  for n = 1, math.min(taken - 1, 1000) do -- a call takes only so many arguments
    units[n] = entry
  end
  for n = 2, taken, 1000 do
    redis.call('RPUSH', log, unpack(units, 1, math.min(taken - n + 1, 1000)))
  end
end
if text and (drop > 0 or left ~= had) then
  -- The place of the last unit that has left is the header's then.
  if drop == 1 then
    redis.call('LPOP', log)
  elseif drop > 0 then
    redis.call('LTRIM', log, drop, '-1')
  end
  redis.call('LSET', log, '0', limit .. string.format('%.0f %d', base, left - drop) .. rest)
end
-- A log must live for the longest window after each unit. To save most units the PEXPIRE, it lives for a
-- window and a quarter after its oldest unit leaves, and the TTL is renewed when that moment moves into
-- another quarter: it has moved by less than a quarter since, and a unit is taken before it.
if not next or before ~= next and math.floor(before / window * 4) ~= math.floor(next / window * 4) then
  redis.call('PEXPIRE', log, math.ceil(((next or at * 100 + window) - now + longest * 1.25) / 1000) + 1000)
end
return replies
