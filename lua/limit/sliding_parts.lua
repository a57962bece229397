-- Sliding window by parts: at most `max` units in any `window`, counted by parts of it; for one or several
-- attempts of one moment. This is the short script; sliding_log decides where it replies {2}, and gives the
-- same answers.
--
-- The log has two numbers for each part in which units were taken, oldest first: the part's number since that
-- of the log's birth, and how many units it has. Units count as taken at the end of their part. The limit is
-- a view of the log: how many parts at its head have left the window. The log begins with a header: the limit
-- of the attempt that wrote it and a bar; the microseconds of a part; the moment of the log's birth, in
-- microseconds since 1970; the units in the log; how many parts have left, and their units. Behind a
-- semicolon may follow what sliding_log keeps for limits that other attempts have. A refused attempt writes
-- nothing.
--
-- KEYS  1 log      list
-- ARGV  1 limit    as in the header: "100000/86400000/60000000|", units, milliseconds, microseconds of a part
--       2 now      microseconds since 1970; empty: the server's clock
--       3 part     microseconds
--       4 max      units
--       5 window   milliseconds
--       then cost, ...  units that an attempt takes, no more than max; 0 (of a single attempt): take none,
--                       and answer whether one unit would be allowed
-- Returns {1, remaining, stamp, 1, resets, rest} when allowed, else {0, remaining, retry, 1}, or -retry if
--         nothing is left; or {2}: nothing is decided, and sliding_log has to decide. For several attempts
--         {stamp, resets, answer, ...}, where an attempt that is allowed has remaining for an answer
--       remaining  units left; below 0 when max was lowered below the units that count
--       stamp      the moment of admission in microseconds, for sliding_settle
--       resets     microseconds until the next unit leaves; 0 when there is none
--       rest       microseconds until the end of the part as which the units count; 0 while the log has parts
--                  of another length
--       retry      microseconds until the same cost fits, if nobody gives units back

local log, limit, now, part = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] + 0
local max, window = ARGV[4] + 0, ARGV[5] * 1000
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local numbers = redis.call('LRANGE', log, '0', '4')
local text, own = numbers[1], part
local birth, base, units, gone, left, rest, longest = nil, nil, 0, 0, 0, '', window
local last, newest
if text then
  if string.sub(text, 1, #limit) ~= limit then
    return {2}
  end
  part, birth, units, gone, left, rest = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)(.*)$', #limit + 1)
  part, birth, units, gone, left = part + 0, birth + 0, units + 0, gone + 0, left + 0
  base = math.ceil(birth / part)
end
local at = math.ceil(now / part)
if text then
  if rest ~= '' then
    local ends, widest = string.match(rest, '^;(%d+) %d+ (%d+)')
    if now >= ends * 1000 then
      return {2}
    end
    longest = math.max(longest, widest * 1000)
  end
  last = redis.call('LRANGE', log, '-2', '-1')
  newest = base + last[1]
  -- One with units of the future (the clock was set back), or whose numbers become long.
  if newest > at or at - base > 2147483647 then
    return {2}
  end
  if gone > 0 then
    numbers = redis.call('LRANGE', log, gone * 2, gone * 2 + 4)
  end
end

local function header()
  return string.format('%s%.0f %.0f %.0f %.0f %.0f%s', limit, part, birth, units, gone, left, rest)
end

-- Skips the parts that have left. numbers has whole pairs behind its first element; more are read in growing
-- chunks. start is the number of parts in front of those in numbers.
local start, size = gone, 4
local function number(n) -- of the part, or of its units
  local place = n - start * 2
  if place < 1 or place >= #numbers then
    size, start = math.min(size * 2, 128), math.floor((n - 1) / 2)
    numbers = redis.call('LRANGE', log, start * 2, start * 2 + size)
    place = n - start * 2
  end
  return numbers[place + 1]
end
local next -- when the next unit leaves
if text then
  local head = number(gone * 2 + 1)
  while head and (base + head) * part + window <= now do
    left, gone = left + number(gone * 2 + 2), gone + 1
    head = number(gone * 2 + 1)
  end
  next = head and (base + head) * part + window
end

local fresh = not next and rest == ''
if fresh then -- no part counts any more, so the log begins anew
  part, at = own, math.ceil(now / own)
end
local free = max - units + left
local several, taken, replies = #ARGV > 6, 0, nil
local ending = at * part + window -- when units that are taken now leave
if several then
  replies = {now, (next or ending) - now}
end
for a = 6, #ARGV do
  local cost = ARGV[a] + 0
  local need, reply = cost > 0 and cost or 1, nil
  local remaining = free - taken
  if remaining < need then
    local lacks, n, leave = need - remaining, gone, nil
    while lacks > 0 do
      local has = next and number(n * 2 + 2)
      if not has then -- units of this moment
        leave = ending
        break
      end
      lacks, leave, n = lacks - has, (base + number(n * 2 + 1)) * part + window, n + 1
    end
    reply = remaining > 0 and {0, remaining, leave - now, 1} or now - leave
  else
    taken, remaining = taken + cost, remaining - cost
    if several then
      reply = remaining
    else
      reply = {1, remaining, now, 1, (next or cost > 0 and ending or now) - now,
        part == own and at * part - now or 0}
    end
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

local drop = rest == '' and gone or 0
units, birth = units + taken, math.min(birth or now, now) -- the clock may have been set back within a part
if fresh then
  local old = drop
  birth, base, units, gone, left = now, at, taken, 0, 0
  redis.call('RPUSH', log, header(), '0', string.format('%.0f', taken)) -- one that a full Redis refuses
  if text then
    redis.call('LTRIM', log, '-3', '-1')
  end
  drop = old
else
  if newest == at and next then -- else it has left, and the clock was set back
    redis.call('LSET', log, '-1', string.format('%.0f', last[2] + taken))
  else
    redis.call('RPUSH', log, string.format('%.0f', at - base), string.format('%.0f', taken))
  end
  if drop > 0 then
    redis.call('LTRIM', log, drop * 2, '-1')
    units, left, gone = units - left, 0, 0
  end
  redis.call('LSET', log, '0', header())
end
-- Units live as long as they count: a new part renews the TTL.
if fresh or newest ~= at then
  redis.call('PEXPIRE', log, math.ceil((at * part + longest - now) / 1000) + 1000)
end
return replies
