-- Sliding window lease: decides an attempt at one limit that counts by parts of its window, as
-- sliding_windows does, and lends the process units ahead. They count in the log from now on, as taken at the
-- end of this part, so the process may hand them out until then. What it did not hand out comes back with a
-- later call. The units of a process that dies, or of a reply that is lost, count until they leave.
--
-- What is lent comes out of slack: at most what is left, divided by twice the number of processes that take
-- part. A refused attempt takes no units; it writes only what it gives back.
--
-- KEYS  1 log      list by parts, as in sliding_windows
--       2 lessees  string, the processes that asked to lend: the number of a part since 1970, how many had
--                  asked in the part before it, and the names of those that asked in it, with a space behind
--                  each
-- ARGV  1 max     units
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; 0: only give back
--       4 now     microseconds since 1970; absent or empty: the server's clock
--       then part    microseconds of a part
--       then ahead   units to lend for a whole part, 1 or more; for what is left of it, less in proportion
--       then name    of the process among the lessees, 7 characters without a space
--       then unused  units that the process gives back, which the log has in one part; absent or empty: 0
--       then taken   a stamp with which they were lent; the earliest one
-- Returns {1, remaining, stamp, 1, resets, lent} when allowed, else {0, remaining, retry}; where cost is 0
--         the units that came back; or {2}: nothing is decided and nothing came back, and sliding_windows has
--         to decide, which makes the log anew
--       remaining  units left, without those lent; below 0 when max was lowered below the units in the log
--       stamp      the moment of admission in microseconds, for sliding_window_refund and for taken
--       resets     microseconds until the next unit leaves
--       lent       units that the process may hand out until the end of the stamp's part
--       retry      microseconds until the same cost fits, if nobody gives units back

local log, max, window, cost = KEYS[1], ARGV[1] + 0, ARGV[2] * 1000, ARGV[3] + 0
local now, part, ahead, name = tonumber(ARGV[4]), ARGV[5] + 0, ARGV[6] + 0, ARGV[7] .. ' '
local unused, taken = tonumber(ARGV[8]) or 0, tonumber(ARGV[9])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local at = math.ceil(now / part)

local numbers = redis.call('LRANGE', log, '0', '4')
local birth, had, units = string.match(numbers[1] or '', '^(%d+) (%d+) (%d+)$')
local base, last, newest = 0, nil, nil
if numbers[1] then
  base = birth and math.ceil(birth / part)
  -- A log in another form, or with units of the future: the clock was set back.
  if had ~= ARGV[5] or at - base > 2147483647 then
    return {2}
  end
  last = redis.call('LRANGE', log, unused > 0 and '-8' or '-2', '-1')
  newest = base + last[#last - 1]
  if newest > at then
    return {2}
  end
end

-- Units come back to the part in which they were lent, if it is one of the last four of the log, and if the
-- log is the same: after a Reset it is not.
local returned = 0
if unused > 0 and birth and taken >= birth + 0 then
  local lent, n = math.ceil(taken / part) - base, #last - 1
  while n > 0 and last[n] - lent > 0 do
    n = n - 2
  end
  if n > 0 and last[n] - lent == 0 then
    returned = math.min(unused, last[n + 1] + 0)
  end
  if returned > 0 and units - returned > 0 then
    last[n + 1], units = last[n + 1] - returned, units - returned
    redis.call('LSET', log, n - #last, last[n + 1])
    redis.call('LSET', log, '0', string.format('%s %s %.0f', birth, had, units))
    numbers = redis.call('LRANGE', log, '0', '4')
  elseif returned > 0 then
    redis.call('DEL', log)
    birth, newest = nil, nil
  end
end
if cost == 0 then
  return returned
end

local count, gone, next, need = birth and units + 0 or 0, 0, nil, cost
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
  return {0, left, lacks - now}
end

local lessees = redis.call('GET', KEYS[2]) or ''
local of, before, names = string.match(lessees, '^(%d+) (%d+) (.*)$')
local since = of and at - of
if since ~= 0 then
  before, names = since == 1 and #names / 8 or 0, ''
end
if #names < 8000 and not string.find(names, name, 1, true) then
  names = names .. name
  redis.call('SET', KEYS[2], string.format('%.0f %.0f %s', at, before + 0, names), 'PX',
    math.ceil(part * 2 / 1000) + 1000)
end
local processes = math.max(before + 0, #names / 8)
local slack = math.floor((left - cost) / (2 * processes))
local lent = math.min(math.ceil(ahead * (at * part - now) / part), slack)

cost = cost + lent
birth = next and birth or string.format('%.0f', now)
local head = string.format('%s %.0f %.0f', birth, part, count + cost)
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
return {1, left - cost, now, 1, (leaves or at * part + window) - now, lent}
