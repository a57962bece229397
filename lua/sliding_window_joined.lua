-- Sliding window: several attempts of one moment. It gives the answers that sliding_window gives to one after
-- the other at that moment, in a shorter form, and writes what that writes.
--
-- KEYS  1 log     list, as in sliding_window
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 now     microseconds since 1970; absent or empty: the server's clock
--       4... costs  units that each attempt takes, 1 to max, in the order of arrival
-- Returns {stamp, resets, answer, ...}, or {2}: nothing is decided, and sliding_windows has to decide each
--         attempt
--       stamp   the moment of admission of those that are allowed, in microseconds, as in sliding_window
--       resets  microseconds until the next unit leaves, as they hear it
--       answer  for each attempt the units left when it is allowed, else {0, remaining, retry} or -retry, as
--               in sliding_window. An array for each costs the server more than all the rest of its work

local log, max, window = KEYS[1], ARGV[1] + 0, ARGV[2] * 1000
local now = tonumber(ARGV[3])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
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

-- Units of this moment leave when those before them have.
local cost, latest = 0, at * grain + window
local replies = {now, (next or latest) - now}
local units = count - gone
local known, free = 0, nil -- when the unit at this place leaves
for n = 4, #ARGV do
  local need, left = ARGV[n] + 0, max - units - cost
  if left >= need then
    cost = cost + need
    replies[n - 1] = left - need
  else
    if need - left ~= known then
      known = need - left
      if known > units then
        free = latest
      elseif known == 1 then
        free = next
      else
        free = (base + redis.call('LINDEX', log, gone + known)) * grain + window
      end
    end
    replies[n - 1] = left > 0 and {0, left, free - now} or now - free
  end
end

-- An attempt that is refused before one is allowed drops many units, and renews the TTL then.
local drop = gone > 50 and max - units < ARGV[4] + 0
if cost > 0 then
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
elseif drop then
  redis.call('LTRIM', log, gone, '-1')
  redis.call('LSET', log, '0', birth)
else
  return replies
end
next = next or latest
if renew or drop then
  redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000) -- as in sliding_window
end
return replies
