-- Sliding windows: settles one admitted attempt, exactly once: gives back units that it did not use, or
-- charges those that it used beyond the units that it took. Units that have left are not given back. Charged
-- ones count as taken now, also beyond max, and attempts are refused until enough units have left.
--
-- KEYS  1 refunds  string, the names of the last attempts of this actor that were settled
--       2 log      list, as in sliding_window
--       3 parts    list, as in sliding_parts
-- ARGV  1 limits   those of the attempt that count one by one, as in the header of the first log; empty: none
--       2 limits   those that count by parts, as in the header of the second; empty: none
--       3 now      microseconds since 1970; empty: the server's clock
--       4 units    to give back, of those that the attempt took; below 0: to charge. A log gets no more than
--                  the largest max, since more would change nothing
--       5 stamp    what the script that allowed the attempt returned
--       6 name     of the attempt among the refunds, 7 characters without a space
--       7 again    milliseconds since the first call that may have settled it already; 0: this is the first
--       8 part     microseconds, of a new log by parts
-- Returns the units given back, or charged; 0: also where an earlier call has settled it
--         -1: an earlier call may have done it, and its name is not known any more.

local refunds, now, units, stamp = KEYS[1], tonumber(ARGV[3]), ARGV[4] + 0, ARGV[5] + 0
local name, again = ARGV[6], ARGV[7] + 0
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
-- shared refund_once
-- Names of 7 characters, the last at the end, and before the first one of each tenth of a second an @ and the
-- last 6 digits of its number. When there are as many as are kept, earlier ones may be forgotten. So a call
-- that is certainly the first goes on, and one that may be a repetition only where none is forgotten since.
-- tonumber: in arithmetic the Lua of miniredis takes a number that begins with 0 for octal.
local REMEMBER, MOST = 120000, 120
local names, tenth = redis.call('GET', refunds) or '', math.floor(now / 100000) % 1000000
if string.find(names, name .. ' ', 1, true) then
  return 0
end
if again > 0 and #names >= MOST * 8 then
  local oldest = string.match(names, '@(%d+) ')
  local age = oldest and (tenth - tonumber(oldest)) % 1000000
  if not age or age > 500000 or (age - 1) * 100 < again then -- very old: the clock was set back
    return -1
  end
end
local newest = string.match(names, '.*@(%d+) ')
if not newest or tonumber(newest) ~= tenth then
  names = names .. '@' .. string.sub('00000' .. tenth, -6) .. ' '
end
redis.call('SET', refunds, string.sub(names .. name .. ' ', -MOST * 8), 'PX', REMEMBER)
-- end refund_once

-- What a header has: the limits; the grain, the birth (of the first log its base) and the units in the log; the
-- views; the rest.
local function read(text, width)
  if width == 1 then
    local limits, base, views, tail = string.match(text, '^(.-:)(%d+)([%d ]*)(.*)$')
    return limits, 100, base + 0, nil, views, tail
  end
  local limits, grain, birth, units, views, tail = string.match(text, '^(.-:)(%d+) (%d+) (%d+)([%d ]*)(.*)$')
  return limits, grain + 0, birth + 0, units + 0, views, tail
end

local function header(width, limits, grain, birth, units, views, tail)
  local numbers = width == 1 and string.format('%.0f', birth) or string.format('%.0f %.0f %.0f', grain, birth, units)
  return limits .. numbers .. views .. tail
end

-- The place of the newest entry of this number, found by halving; nil without one.
local function find(log, width, entries, number)
  local low, high, middle = 1, entries, entries -- most often it is the newest
  while low < high do
    if redis.call('LINDEX', log, (middle - 1) * width + 1) - number <= 0 then
      low = middle
    else
      high = middle - 1
    end
    middle = math.ceil((low + high) / 2)
  end
  return redis.call('LINDEX', log, (low - 1) * width + 1) - number == 0 and low or nil
end

-- Without the other log one without units goes. Beside it, it would be made from that.
local function give(log, width, other)
  local text = redis.call('LINDEX', log, '0')
  if not text then
    return 0
  end
  local named, grain, birth, sum, views, tail = read(text, width)
  local entries = (redis.call('LLEN', log) - 1) / width
  local number = math.ceil(stamp / grain) - (width == 2 and math.ceil(birth / grain) or birth)
  local taken = number >= 0 and (width == 1 or stamp >= birth)
  local place = taken and entries > 0 and find(log, width, entries, number)
  if not place then -- it has left, or was taken before the log was made, as before a Reset
    return 0
  end
  local counts = false -- in a view
  local function look(gone)
    counts = counts or gone + 0 < place
  end
  if width == 1 then
    string.gsub(views, '%d+', look)
  else
    string.gsub(views, '(%d+) %d+', look)
  end
  string.gsub(tail, '%d+,%d+,(%d+),', look)
  if not counts then
    return 0
  end

  local removed
  if width == 1 then
    removed = redis.call('LREM', log, place * 2 > entries and -units or units, number)
    if entries == removed and redis.call('EXISTS', other) == 0 then
      redis.call('DEL', log)
      return removed
    end
    local function shift(gone)
      return gone + 0 >= place and string.format('%.0f', gone - removed) or nil
    end
    views = string.gsub(views, '%d+', shift)
    tail = string.gsub(tail, '(%d+,%d+,)(%d+)(,)(%d+)', function(front, gone, comma, left)
      return front .. (shift(gone) or gone) .. comma .. (shift(left) or left)
    end)
    redis.call('LSET', log, '0', header(width, named, grain, birth, nil, views, tail))
    return removed
  end
  local has = redis.call('LINDEX', log, place * 2) + 0
  removed = math.min(units, has)
  if sum - removed == 0 and redis.call('EXISTS', other) == 0 then
    redis.call('DEL', log)
    return removed
  end
  local function less(gone, left)
    return gone + 0 >= place and string.format('%.0f', left - removed) or left
  end
  views = string.gsub(views, '(%d+) (%d+)', function(gone, left)
    return gone .. ' ' .. less(gone, left)
  end)
  tail = string.gsub(tail, '(%d+,%d+,)(%d+),(%d+)', function(front, gone, left)
    return front .. gone .. ',' .. less(gone, left)
  end)
  redis.call('LSET', log, place * 2, string.format('%.0f', has - removed))
  redis.call('LSET', log, '0', header(width, named, grain, birth, sum - removed, views, tail))
  return removed
end

local function charge(log, width, limits, own, other)
  local text = redis.call('LINDEX', log, '0')
  if not text and (limits == '' or other) then
    return 0 -- the next attempt makes it from the other one
  end
  local most, longest, count = 0, 0, 0
  for max, window in string.gmatch(limits, '(%d+)/(%d+)') do
    most, longest, count = math.max(most, max), math.max(longest, window), count + 1
  end
  local named, grain, birth, sum, views, tail = limits, own, width == 1 and math.ceil(now / own) or now, 0, nil, ''
  local entries, last, number = 0, nil, 0
  if text then
    named, grain, birth, sum, views, tail = read(text, width)
    entries = (redis.call('LLEN', log) - 1) / width
    number = math.ceil(now / grain) - (width == 2 and math.ceil(birth / grain) or birth)
    last = entries > 0 and redis.call('LRANGE', log, -width, '-1')
    number = last and math.max(number, last[1] + 0) or number -- units of the future come last
    for max, window in string.gmatch(text, '(%d+)[/,](%d+)[/,: ]') do
      most, longest = math.max(most, max), math.max(longest, window)
    end
  else
    views = string.rep(width == 1 and ' 0' or ' 0 0', count)
    if width == 2 and count > 1 then
      tail = string.format(';%.0f 0 %.0f ', math.ceil(now / 1000) + longest, longest)
    end
  end
  local more = math.min(-units, most)
  local unit = string.format('%.0f', number)
  if width == 1 then
    if not text then
      redis.call('RPUSH', log, header(width, named, grain, birth, nil, views, tail))
    end
    local numbers = {}
    for n = 1, math.min(more, 1000) do -- a call takes only so many arguments
      numbers[n] = unit
    end
    for from = 1, more, 1000 do
      redis.call('RPUSH', log, unpack(numbers, 1, math.min(more - from + 1, 1000)))
    end
    local excess = entries + more - most
    if text and excess > 0 then
      local function shift(gone)
        return string.format('%.0f', math.max(gone - excess, 0))
      end
      views = string.gsub(views, '%d+', shift)
      tail = string.gsub(tail, '(%d+,%d+,)(%d+),(%d+)', function(front, gone, left)
        return front .. shift(gone) .. ',' .. shift(left)
      end)
      redis.call('LTRIM', log, excess, '-1')
      redis.call('LSET', log, '0', header(width, named, grain, birth, nil, views, tail))
    end
  else
    local head = header(width, named, grain, birth, sum + more, views, tail)
    if not text then
      redis.call('RPUSH', log, head, unit, string.format('%.0f', more))
    elseif last and last[1] - number == 0 then
      redis.call('LSET', log, '-1', string.format('%.0f', last[2] + more))
      redis.call('LSET', log, '0', head)
    else
      redis.call('RPUSH', log, unit, string.format('%.0f', more))
      redis.call('LSET', log, '0', head)
    end
  end
  local lives = math.ceil(grain / 1000 + longest * 2.25) + 1000 -- the most of sliding_window
  redis.call('PEXPIRE', log, math.max(lives, redis.call('PTTL', log)))
  return more
end

if units > 0 then
  return math.max(give(KEYS[2], 1, KEYS[3]), give(KEYS[3], 2, KEYS[2]))
end
local logs = redis.call('EXISTS', KEYS[2], KEYS[3])
return math.max(charge(KEYS[2], 1, ARGV[1], 100, logs > 0), charge(KEYS[3], 2, ARGV[2], ARGV[8] + 0, logs > 0))
