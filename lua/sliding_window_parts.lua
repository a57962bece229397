-- Sliding window by parts: at most `max` units in any `window`, counted by parts of it. sliding_windows.lua
-- decides several limits at once; for one limit it gives the same answers, on the same log. This script is
-- the short one for most uses.
--
-- The log begins with a text of three numbers: the moment of its birth in microseconds since 1970, the
-- microseconds of a part, the units in the log. Two numbers follow for each part of the window in which units
-- were taken, oldest first: the part's number since the birth's, and how many units it has. Units count as
-- taken at the end of their part. A unit leaves when its window is over. A refused attempt takes no units; it
-- writes only to drop parts that left long ago, many at once.
--
-- KEYS  1 log     list
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; 0: take none, and answer whether one unit
--                 would be allowed
--       4 now     microseconds since 1970; absent or empty: the server's clock
--       then part    microseconds of a part
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry}, or -retry if no unit is
--         left; or {2}: nothing is decided, and sliding_windows has to, which makes the log anew
--       remaining  units left
--       stamp      the moment of admission in microseconds, for sliding_window_refund
--       resets     microseconds until the next unit leaves; 0 when there is none
--       retry      microseconds until the same cost fits

local log, max, window, cost, now = KEYS[1], ARGV[1] + 0, ARGV[2] * 1000, ARGV[3] + 0, tonumber(ARGV[4])
local part = ARGV[5] + 0
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1
local at = math.ceil(now / part)

local numbers = redis.call('LRANGE', log, '0', '4')
local birth, base, count, last, newest = nil, 0, 0, nil, nil
if numbers[1] then
  local had, units
  birth, had, units = string.match(numbers[1], '^(%d+) (%d+) (%d+)$')
  base = birth and math.ceil(birth / part)
  -- A log in another form, one whose numbers become long, or one with units of the future: the clock was set
  -- back.
  if had ~= ARGV[5] or at - base > 2147483647 then
    return {2}
  end
  last = redis.call('LRANGE', log, '-2', '-1')
  newest, count = base + last[1], units + 0
  if newest > at then
    return {2}
  end
end

local gone, next = 0, nil
local leaves, lacks = nil, nil -- when the next unit leaves, and when enough units will have left
if birth then
  -- shared parts_head
  -- Usually the first two parts are enough. After a pause more are needed; they are read in growing chunks.
  local from, size = 0, 4
  local function number(n)
    if n >= from + #numbers then
      size, from = math.min(size * 2, 128), n - (n + 1) % 2 -- a chunk has whole pairs
      numbers = redis.call('LRANGE', log, from, from + size - 1)
    end
    return numbers[n - from + 1]
  end
  local first = number(1)
  while first and (base + first) * part + window <= now do
    count, gone = count - number(gone + 2), gone + 2
    first = number(gone + 1)
  end
  next = first and (base + first) * part + window
  local lacking, n = need - max + count, gone
  if count > 0 then
    while number(n + 2) == '0' do -- all units of the part were given back
      n = n + 2
    end
    leaves = (base + number(n + 1)) * part + window
  end
  while lacking > 0 do
    lacks = (base + number(n + 1)) * part + window
    lacking, n = lacking - number(n + 2), n + 2
  end
  -- end parts_head
end
local left = max - count
if left < need then
  if cost > 0 and gone > 50 then
    redis.call('LTRIM', log, gone, '-1')
    redis.call('LSET', log, '0', birth .. ' ' .. ARGV[5] .. ' ' .. count)
    redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000)
  end
  return left > 0 and {0, left, lacks - now} or now - lacks
end
if cost == 0 then
  return {1, left, now, 1, leaves and leaves - now or 0}
end

local head = (next and birth or string.format('%.0f', now)) .. ' ' .. ARGV[5] .. ' ' .. count + cost
-- shared parts_push
if not next then -- as in window_push
  redis.call('RPUSH', log, head, '0', cost)
  if gone > 0 then
    redis.call('LTRIM', log, gone + 1, '-1')
  end
else
  if newest == at then
    redis.call('LSET', log, '-1', last[#last] + cost)
  else
    redis.call('RPUSH', log, at - base, cost)
  end
  if gone > 0 then
    redis.call('LTRIM', log, gone, '-1')
  end
  redis.call('LSET', log, '0', head)
end
if not next or newest ~= at then
  redis.call('PEXPIRE', log, math.ceil((at * part + window - now) / 1000) + 1000)
end
-- end parts_push
return {1, left - cost, now, 1, (leaves or at * part + window) - now}
