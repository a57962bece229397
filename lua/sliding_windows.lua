-- Sliding windows: at most `max` units in any `window`, for several limits at once, all or nothing; and for
-- limits that count by parts of their window. Each limit has a log, in one of two forms:
--   one by one  as in sliding_window.lua, which decides a single limit of this kind on the same log
--   by parts    list of two numbers for each part of the window in which units were taken, oldest first: the
--               part's number since 1970, and how many units had been taken by its end, modulo 10^15. Units
--               count as taken at the end of their part. The first pair is the base of the count: its units
--               have left
-- A unit leaves when its window is over and all units before it have left. A refused attempt takes no units;
-- it writes only to drop numbers that left long ago, many at once.
--
-- KEYS  1 log            list; further limits have their logs in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent or empty: 1; 0:
--                        take none, and answer whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   for each limit, the microseconds of a part, or 0 to count one by one; absent: all
--                        one by one
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units in the
--                  log
--       stamp      the moment of admission in microseconds, for sliding_window_refund; after the clock was
--                  set back, the beginning of the part to which the units were added
--       retry      microseconds until the same cost fits every limit
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one that
--                  is full for the longest time
--       resets     microseconds until the next unit leaves the binding limit; 0 when there is none

local limits = #KEYS
local cost, now = tonumber(ARGV[limits * 2 + 1]) or 1, tonumber(ARGV[limits * 2 + 2])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1
local WRAP = 1000000000000000

local leaves
-- shared window_leaves
leaves = function(unit, at, grain, window)
  local age = (at - unit + 2147483648) % 4294967296 - 2147483648
  return (at - age) * grain + window
end
-- end window_leaves

local binding, remaining, retry
local moment = now -- at which units are taken
-- Per limit, where it applies: numbers to drop; when the head leaves, of a log whose TTL is to be renewed (0
-- for a log without units); the newest part that counts; the units taken so far.
local drop, renew, newest, sums = {}, {}, {}, {}
local resets = {} -- when the next unit leaves

for i = 1, limits do
  local log, max, window, part = KEYS[i], ARGV[i * 2 - 1], ARGV[i * 2] * 1000, ARGV[limits * 2 + 2 + i]
  local count, next -- the units in the window, and when enough of them will have left
  local gone = 0    -- numbers at the head of the log that are no longer needed

  if not part or part == '0' then
    local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
    local at = math.ceil(now / grain)
    count = redis.call('LLEN', log)
    next = count > 0 and leaves(redis.call('LINDEX', log, '0'), at, grain, window)
    renew[i] = not next and 0 or nil
    if next and next <= now then
      -- shared window_gone
      -- Usually one unit has left. After a pause many have; they are read in chunks.
      local first, unit, chunk = next, nil, nil
      repeat
        gone = gone + 1
        if gone == 1 then
          unit = redis.call('LINDEX', log, '1')
        else
          if gone % 50 == 2 then
            chunk = redis.call('LRANGE', log, gone, gone + 49)
          end
          unit = chunk[(gone - 2) % 50 + 1]
        end
        next = unit and leaves(unit, at, grain, window)
      until not next or next > now
      local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
      -- end window_gone
      count = count - gone
      if moved then
        renew[i] = next or 0
      end
    end

    resets[i] = next or nil
    local lacking = need - max + count
    if lacking > 1 then
      next = math.max(next, leaves(redis.call('LINDEX', log, gone + lacking - 1), at, grain, window))
    end
  else
    -- Usually the first two pairs are enough. After a pause more are needed; they are read in growing chunks.
    local numbers, from, size = redis.call('LRANGE', log, '0', '3'), 0, 4
    local function number(n)
      if n >= from + #numbers then
        size, from = math.min(size * 2, 128), n - n % 2 -- a chunk has whole pairs
        numbers = redis.call('LRANGE', log, from, from + size - 1)
      end
      return numbers[n - from + 1]
    end
    local before, tail = numbers[2] or 0, redis.call('LRANGE', log, '-2', '-1')
    sums[i] = tail[2]
    gone = 2
    local over = number(gone)
    if over then
      newest[i] = tail[1] + 0
      if newest[i] > math.ceil(now / part) then -- the clock was set back
        moment = math.max(moment, (newest[i] - 1) * part + 1)
      end
    end
    while over and over * part + window <= now do
      before = number(gone + 1)
      gone = gone + 2
      over = number(gone)
    end

    count = ((sums[i] or 0) - before) % WRAP
    local lacking, enough = need - max + count, gone
    if count > 0 then
      while (number(enough + 1) - before) % WRAP == 0 do -- all units of the part were given back
        enough = enough + 2
      end
      resets[i] = number(enough) * part + window
    end
    if lacking > 0 then
      while (number(enough + 1) - before) % WRAP < lacking do
        enough = enough + 2
      end
      next = number(enough) * part + window
    end
    gone = gone - 2 -- the newest pair that has left stays
  end

  if gone > 0 then
    drop[i] = gone
  end
  local left = max - count
  local wait = left < need and next - now
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit
end

-- As in sliding_window.lua.
local function renewal(head, window)
  return math.ceil((head - now + window * 1.25) / 1000) + 1000
end

if retry then
  for i, n in pairs(cost > 0 and drop or {}) do
    if n > 50 then
      redis.call('LTRIM', KEYS[i], n, '-1')
      if renew[i] then
        redis.call('PEXPIRE', KEYS[i], renewal(renew[i], ARGV[i * 2] * 1000))
      end
    end
  end
  return {0, remaining, retry, binding}
end
if cost == 0 then
  return {1, remaining, now, binding, resets[binding] and resets[binding] - now or 0}
end

for i = 1, limits do
  local log, window, part = KEYS[i], ARGV[i * 2] * 1000, ARGV[limits * 2 + 2 + i]
  if not part or part == '0' then
    local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
    local at = math.ceil(moment / grain)
    -- shared window_push
    local unit = (at + 2147483648) % 4294967296 - 2147483648
    redis.call('RPUSH', log, unit)
    if cost > 1 then
      local units = {}
      for n = 1, math.min(cost - 1, 1000) do -- unpack is limited
        units[n] = unit
      end
      for from = 2, cost, 1000 do
        redis.call('RPUSH', log, unpack(units, 1, math.min(cost - from + 1, 1000)))
      end
    end
    -- end window_push
    resets[i] = resets[i] or at * grain + window
    if renew[i] then
      redis.call('PEXPIRE', log, renewal(renew[i] > 0 and renew[i] or at * grain + window, window))
    end
  else
    local at, sum = math.ceil(moment / part), ((sums[i] or 0) + cost) % WRAP
    resets[i] = resets[i] or at * part + window
    if newest[i] == at then
      redis.call('LSET', log, '-1', sum)
    else
      if not sums[i] then
        redis.call('RPUSH', log, '0', '0')
      end
      redis.call('RPUSH', log, at, sum)
      redis.call('PEXPIRE', log, math.ceil((at * part + window - now) / 1000) + 1000)
    end
  end
  if drop[i] then
    redis.call('LTRIM', log, drop[i], '-1')
  end
end
return {1, remaining, moment, binding, resets[binding] - now}
