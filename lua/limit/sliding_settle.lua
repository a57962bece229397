-- Sliding windows: settles one admitted attempt, exactly once: gives back units that it did not use, or
-- charges those that it used beyond the units that it took. Units that the log has dropped are not given
-- back. Charged ones count as taken now, also beyond max, and attempts are refused until enough units have
-- left.
--
-- KEYS  1 refunds  string, the names of the last attempts of this actor that were settled
--       2 log      list, as in sliding_window or as in sliding_parts
--       3 parts    list, as in sliding_parts, while there is one beside that of sliding_window
-- ARGV  1 limits   those of the attempt that count one by one, as in the header of their log; empty: none
--       2 limits   those that count by parts, as in the header of theirs; empty: none
--       3 now      microseconds since 1970; empty: the server's clock
--       4 units    to give back, of those that the attempt took; below 0: to charge. A log gets no more than
--                  the largest max of the attempt, since more would change nothing
--       5 stamp    what the script that allowed the attempt returned
--       6 name     of the attempt among the refunds, 7 characters without a space
--       7 again    milliseconds since the first call that may have settled it already; 0: this is the first
--       8 part     microseconds, of a new log by parts
-- Returns the units given back, or charged; 0: also where an earlier call has settled it
--         -1: an earlier call may have done it, and its name is not known any more

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


-- The largest max and the longest window of the limits in a text, behind a number of others.
local function largest(text, form, most, window)
  for max, of in string.gmatch(text, form) do
    most, window = math.max(most, max), math.max(window, of)
  end
  return most, window
end
local NAMED, KEPT = '(%d+)/(%d+)[/%d]*[:| ]', '(%d+),(%d+),%d+,%d+,%d+'
local _, longest = largest(ARGV[1] .. ' ' .. ARGV[2], NAMED, 0, 0) -- of the attempt

-- A log: width is how many numbers an entry has, and birth that of the log by parts, else the base.
local function read(key, text)
  local l = {key = key, text = text, width = 1, grain = 100}
  l.limits, l.views, l.tail = string.match(text, '^(.-[:|])([%d ]+)(.*)$')
  if string.find(l.limits, '|', 1, true) then
    l.width = 2
    l.grain, l.birth, l.sum, l.views = string.match(l.views, '^(%d+) (%d+) (%d+)(.*)$')
    l.grain, l.sum = l.grain + 0, l.sum + 0
  else
    l.birth, l.views = string.match(l.views, '^(%d+)(.*)$')
  end
  l.birth = l.birth + 0
  l.base = l.width == 2 and math.ceil(l.birth / l.grain) or l.birth
  l.entries = (redis.call('LLEN', key) - 1) / l.width
  return l
end

-- Changes how many entries have left each view, and their units: f gets and returns both.
local function change(l, f)
  l.views = string.gsub(l.views, '(%d+) (%d+)', function(gone, left)
    return string.format('%.0f %.0f', f(gone + 0, (l.width == 1 and gone or left) + 0))
  end)
  l.tail = string.gsub(l.tail, '(%d+,%d+,)(%d+),(%d+)', function(front, gone, left)
    return front .. string.format('%.0f,%.0f', f(gone + 0, left + 0))
  end)
end

local function write(l)
  if l.width == 1 then -- the second number says when the next unit leaves
    l.views = string.gsub(l.views, '(%d+) %d+', function(gone)
      return gone .. ' ' .. (redis.call('LINDEX', l.key, gone + 1) or '0')
    end)
  end
  local numbers = l.width == 1 and string.format('%.0f', l.birth)
    or string.format('%.0f %.0f %.0f', l.grain, l.birth, l.sum)
  redis.call('LSET', l.key, '0', l.limits .. numbers .. l.views .. l.tail)
end

-- The place of the newest entry that is not above this number, found by halving.
local function find(l, number)
  local low, high, middle = 1, l.entries, l.entries -- most often it is the newest
  while low < high do
    if redis.call('LINDEX', l.key, (middle - 1) * l.width + 1) - number <= 0 then
      low = middle
    else
      high = middle - 1
    end
    middle = math.ceil((low + high) / 2)
  end
  return low
end

-- Gives back units of the entries up to this place that have its number, newest first: after the clock was
-- set back several entries of a log by parts may have it. Returns how many.
local function giveFrom(l, place, number)
  local removed = 0
  if l.width == 1 then
    removed = math.min(units, place)
    removed = redis.call('LREM', l.key, place * 2 > l.entries and -removed or removed, number)
    change(l, function(gone)
      gone = gone - math.max(math.min(gone - place, 0) + removed, 0)
      return gone, gone
    end)
    l.entries = l.entries - removed
    return removed
  end
  while removed < units and place > 0 and redis.call('LINDEX', l.key, place * 2 - 1) - number == 0 do
    local has = redis.call('LINDEX', l.key, place * 2) + 0
    local n = math.min(units - removed, has)
    local emptied = n == has and 1 or 0
    if emptied == 0 then
      redis.call('LSET', l.key, place * 2, string.format('%.0f', has - n))
    else -- both of its numbers go
      redis.call('LSET', l.key, place * 2 - 1, '')
      redis.call('LSET', l.key, place * 2, '')
      redis.call('LREM', l.key, place * 2 > l.entries and -2 or 2, '')
    end
    change(l, function(gone, left)
      if gone < place then
        return gone, left
      end
      return gone - emptied, left - n
    end)
    l.entries, removed, place = l.entries - emptied, removed + n, place - 1
  end
  l.sum = l.sum - removed
  return removed
end

-- A log without units goes, if it is alone. Beside the other one it would be made from that.
local function give(l, alone)
  local number = math.ceil(stamp / l.grain) - l.base
  if l.entries == 0 or number < 0 or l.width == 2 and stamp < l.birth then
    return 0 -- it was taken before the log was made, as before a Reset
  end
  local place, removed = find(l, number), 0
  if redis.call('LINDEX', l.key, (place - 1) * l.width + 1) - number == 0 then
    removed = giveFrom(l, place, number)
  end
  if alone and l.entries == 0 then
    redis.call('DEL', l.key)
  elseif removed > 0 then
    if l.width == 2 then -- sliding_parts adds to the newest entry, which must not have left for anybody
      for gone in string.gmatch(l.tail, '%d+,%d+,(%d+),%d+,%d+') do
        if gone + 0 >= l.entries then
          l.tail = string.gsub(l.tail, '^;%d+', ';0')
        end
      end
    end
    write(l)
  end
  return removed
end

-- A call takes only so many arguments. Units of the future come last. A log gets no more units than its
-- largest max, since more would change nothing.
local function charge(l)
  local keeps = largest(l.tail, KEPT, largest(l.limits .. ' ' .. ARGV[l.width], NAMED, 0, 0))
  local more, number = math.min(-units, keeps), math.ceil(now / l.grain) - l.base
  local last = l.entries > 0 and redis.call('LRANGE', l.key, -l.width, '-1') or {}
  number = math.max(number, (last[1] or 0) + 0)
  local text = string.format('%.0f', number)
  if l.width == 2 then
    local counts = l.entries > 0
    change(l, function(gone, left)
      counts = counts and gone < l.entries
      return gone, left
    end)
    if counts and last[1] == text then
      redis.call('LSET', l.key, '-1', string.format('%.0f', last[2] + more))
    else
      redis.call('RPUSH', l.key, text, string.format('%.0f', more))
    end
    l.sum = l.sum + more
    write(l)
    return more
  end
  local numbers = {}
  for n = 1, math.min(more, 1000) do
    numbers[n] = text
  end
  for from = 1, more, 1000 do
    redis.call('RPUSH', l.key, unpack(numbers, 1, math.min(more - from + 1, 1000)))
  end
  local excess = l.entries + more - keeps - math.max(50, math.floor(keeps / 4)) -- as sliding_log does
  if excess > 0 then
    redis.call('LTRIM', l.key, excess, '-1')
    change(l, function(gone)
      return math.max(gone - excess, 0), math.max(gone - excess, 0)
    end)
  end
  write(l)
  return more
end

local logs = {}
for place = 2, 3 do
  local text = redis.call('LINDEX', KEYS[place], '0')
  if text then
    logs[#logs + 1] = read(KEYS[place], text)
  end
end
local settled = 0
if units > 0 then
  for _, l in ipairs(logs) do
    settled = math.max(settled, give(l, #logs == 1))
  end
  return settled
end

-- Without a log the limits of the attempt begin one, or one of each kind.
local both = ARGV[1] ~= '' and ARGV[2] ~= ''
for width = 1, #logs == 0 and 2 or 0 do
  local limits, windows = ARGV[width], 0
  for _ in string.gmatch(limits, NAMED) do
    windows = windows + 1
  end
  local numbers = width == 1 and string.format('%.0f', math.ceil(now / 100))
    or string.format('%s %.0f 0', ARGV[8], now)
  local header = limits .. numbers .. string.rep(' 0 0', windows)
  if both then
    header = header .. string.format(';0 0 %d', longest)
  end
  if windows > 0 then
    local key = both and width == 2 and KEYS[3] or KEYS[2]
    redis.call('RPUSH', key, header)
    logs[#logs + 1] = read(key, header)
  end
end
local lives = 0
for _, l in ipairs(logs) do
  _, longest = largest(l.tail, KEPT, largest(l.limits, NAMED, 0, longest))
  settled = math.max(settled, charge(l))
  lives = math.max(lives, l.grain / 1000)
end
for _, l in ipairs(logs) do -- the most that sliding_window lets it live
  redis.call('PEXPIRE', l.key, math.ceil(lives + longest * 2.25) + 1000)
end
return settled
