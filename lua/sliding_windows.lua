-- Sliding windows: at most `max` units in any `window`, for several limits at once, all or nothing; and for limits that count by parts
-- of their window. Each limit has a log, by one of two ways of counting:
--   one by one  as in sliding_window.lua, which decides a single limit of this kind, and shares its log
--   by parts    list of two numbers for each part of the window in which units were taken, oldest first: the part's number
--               since 1970, and how many units had been taken by its end, modulo 10^15. Units count as taken at the end of
--               their part. The first pair is where the count begins: its units have left
-- A unit leaves when its window is over and all before it have left. A refused attempt takes nothing, and writes nothing but that
-- what has left for long is dropped, much at once.
--
-- KEYS  1 log            list; further limits have their logs in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent: 1; 0: none, and the answer is
--                        whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   for each limit, the microseconds of a part, or 0 to count one by one; absent: all one by one
-- Returns {1, remaining, stamp, limit} when allowed, else {0, remaining, retry, limit}
--       remaining  units left in the limit that speaks; below 0 when its max has become smaller than what is in the log
--       stamp      the moment of admission in microseconds, for sliding_window_refund
--       retry      microseconds until the same cost fits every limit
--       limit      which limit speaks, from 1: the one with least left; when refused, the one that is full longest

local limits = #KEYS
local cost, now = ARGV[limits * 2 + 1], ARGV[limits * 2 + 2]
cost = cost and cost + 0 or 1
if now and now ~= '' then
  now = now + 0
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local need = cost > 0 and cost or 1
local WRAP = 1000000000000000

-- What is known of each limit after it was read.
local log, max, window, part, gone, renew, sum = KEYS, {}, {}, {}, {}, {}, {}

-- Most often the beginning of a log is enough; after a pause much is needed, and read in chunks that grow and hold whole pairs.
local function reader(i, size)
  local chunk, from = {}, 0
  return function(n)
    if n >= from + #chunk then
      from = n - n % 2
      chunk, size = redis.call('LRANGE', log[i], from, from + size - 1), math.min(size * 2, 128)
    end
    return chunk[n - from + 1]
  end
end

local function grain(i)
  return window[i] > 26843545600 and math.ceil(window[i] / 268435456) or 100
end

-- Returns how many units are in the window, and the moment at which enough of them have left.
local function one_by_one(i)
  local grain, count, number = grain(i), redis.call('LLEN', log[i]), reader(i, 2)
  local at = math.ceil(now / grain)
  local function leaves(unit)
    local age = (at - unit + 2147483648) % 4294967296 - 2147483648
    return (at - age) * grain + window[i]
  end

  local n = 0
  local first = count > 0 and leaves(number(0))
  local next = first
  while next and next <= now do
    n = n + 1
    local unit = number(n)
    next = unit and leaves(unit)
  end
  gone[i] = n
  renew[i] = not next or math.floor(first / window[i] * 4) ~= math.floor(next / window[i] * 4)

  local lacking = need - max[i] + count - n
  if lacking > 1 then
    next = leaves(redis.call('LINDEX', log[i], n + lacking - 1))
  end
  return count - n, next
end

local function by_parts(i)
  local number, n = reader(i, 4), 2
  local before, last = number(1) or 0, redis.call('LINDEX', log[i], '-1') or 0
  while number(n) and number(n) * part[i] + window[i] <= now do
    before, n = number(n + 1), n + 2
  end
  gone[i], sum[i] = n - 2, last + 0

  local count = (last - before) % WRAP
  local lacking = need - max[i] + count
  if lacking <= 0 then
    return count
  end
  while (number(n + 1) - before) % WRAP < lacking do
    n = n + 2
  end
  return count, number(n) * part[i] + window[i]
end

local speaks, remaining, retry
for i = 1, limits do
  max[i], window[i], part[i] = ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000, (ARGV[limits * 2 + 2 + i] or 0) + 0
  local count, free
  if part[i] > 0 then
    count, free = by_parts(i)
  else
    count, free = one_by_one(i)
  end

  local left = max[i] - count
  if left < need then
    if not retry or free - now > retry then
      speaks, remaining, retry = i, left, free - now
    end
  elseif not retry and (not speaks or left - cost < remaining) then
    speaks, remaining = i, left - cost
  end
end

-- The TTL of a log that counts one by one: see sliding_window.lua.
local function expire(i)
  redis.call('PEXPIRE', log[i], math.ceil(window[i] / 1000 * 2.25) + 1000)
end

if retry then
  for i = 1, limits do
    if cost > 0 and gone[i] > 50 then
      redis.call('LTRIM', log[i], gone[i], '-1')
      if part[i] == 0 then
        expire(i)
      end
    end
  end
  return {0, remaining, retry, speaks}
end
if cost == 0 then
  return {1, remaining, now, speaks}
end

for i = 1, limits do
  if part[i] > 0 then
    local at, last = math.ceil(now / part[i]), redis.call('LINDEX', log[i], '-2')
    local total = (sum[i] + cost) % WRAP
    if last and last - at >= 0 then
      redis.call('LSET', log[i], '-1', total)
    else
      if not last then
        redis.call('RPUSH', log[i], '0', '0')
      end
      redis.call('RPUSH', log[i], at, total)
      redis.call('PEXPIRE', log[i], math.ceil((part[i] + window[i]) / 1000) + 1000)
    end
  else
    local unit = (math.ceil(now / grain(i)) + 2147483648) % 4294967296 - 2147483648
    local units = {}
    for n = 1, math.min(cost, 1000) do -- a call takes only so many arguments
      units[n] = unit
    end
    for from = 1, cost, 1000 do
      redis.call('RPUSH', log[i], unpack(units, 1, math.min(cost - from + 1, 1000)))
    end
    if renew[i] then
      expire(i)
    end
  end
  if gone[i] > 0 then
    redis.call('LTRIM', log[i], gone[i], '-1')
  end
end
return {1, remaining, now, speaks}
