-- Sliding window: at most `max` units in any `window`, for one or several limits at once, all or nothing.
-- The log holds one stamp a unit, oldest first: the server's clock in microseconds, 7 bytes, big-endian.
-- A refused attempt writes nothing.
--
-- KEYS  1 log            string, the stamps of the units admitted
-- ARGV  1 cost           units that this attempt takes, 1 or more; no more than the smallest max
--       2 now            microseconds; empty: the server's clock
--       3 max, 4 window  a limit: units, milliseconds; further limits follow in 5, 6 and so on
-- Returns {allowed, limit, remaining, retry, reset, stamp}
--       allowed    1 or 0
--       limit      which limit speaks, from 1: when refused the one that is full longest, else the one with least left
--       remaining  units left in that limit after this attempt
--       retry      microseconds until the same cost fits every limit; 0 when allowed
--       reset      microseconds until that limit is as good as new
--       stamp      the stamp of the units admitted (for sliding_window_refund); 0 when refused

local log = KEYS[1]
local cost = tonumber(ARGV[1])
local now = tonumber(ARGV[2])

local WIDTH = 7

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local most, longest = 0, 0
for i = 3, #ARGV, 2 do
  most = math.max(most, tonumber(ARGV[i]))
  longest = math.max(longest, tonumber(ARGV[i + 1]))
end

-- No limit looks at more than its `max` newest units, so older ones are not even fetched.
local stamps = redis.call('GETRANGE', log, -WIDTH * most, -1)
local count = #stamps / WIDTH

local function stamp_at(i)
  local a, b, c, d, e, f, g = string.byte(stamps, (i - 1) * WIDTH + 1, i * WIDTH)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- A clock that was set back must not make old units look younger than new ones: time stands still until it catches up.
if count > 0 then
  now = math.max(now, stamp_at(count))
end

-- The first unit that is still inside the window; count + 1 when none is.
local function first_live(window)
  local low, high = 1, count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if stamp_at(middle) + window > now then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local retry, limit, remaining, reset = 0, 0, 0, 0
for i = 3, #ARGV, 2 do
  local max, window = tonumber(ARGV[i]), ARGV[i + 1] * 1000
  local first = first_live(window)
  local left = max - (count - first + 1)
  if left < cost then
    -- As many of the oldest units must leave as this attempt lacks.
    local wait = stamp_at(first + (cost - left) - 1) + window - now
    if wait > retry then
      retry, limit, remaining = wait, (i - 1) / 2, math.max(left, 0)
      reset = stamp_at(count) + window - now
    end
  elseif retry == 0 and (limit == 0 or left - cost < remaining) then
    limit, remaining, reset = (i - 1) / 2, left - cost, window
  end
end

if retry > 0 then
  return {0, limit, remaining, retry, reset, 0}
end

local high, low = math.floor(now / 16777216), now % 16777216
local stamp = string.char(
  math.floor(high / 16777216) % 256, math.floor(high / 65536) % 256, math.floor(high / 256) % 256, high % 256,
  math.floor(low / 65536), math.floor(low / 256) % 256, low % 256)

-- One write keeps what is live, adds what is new and sets the TTL. Redis counts a TTL from the whole millisecond,
-- so one more is added: the log must not vanish before its newest unit is out of the longest window.
local live = string.sub(stamps, (first_live(longest * 1000) - 1) * WIDTH + 1)
redis.call('SET', log, live .. string.rep(stamp, cost), 'PX', longest + 1)
return {1, limit, remaining, 0, reset, now}
