-- Sliding window: takes the units of one admitted attempt out of the log again, exactly once.
--
-- KEYS  1 log       string, as sliding_window writes it
--       2 refund    string, marks this attempt as refunded
-- ARGV  1 stamp     what sliding_window returned for the attempt
--       2 cost      units that the attempt took
--       3 longest   milliseconds, the longest window of the guard
--       4 now       microseconds; empty: the server's clock
-- Returns the number of units given back: 0 when they had left the log already or were given back before.

local log, refund = KEYS[1], KEYS[2]
local stamp, cost, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])

local WIDTH = 7

local stamps = redis.call('GET', log)
if not stamps then
  return 0
end
local count = #stamps / WIDTH

local function stamp_at(i)
  local a, b, c, d, e, f, g = string.byte(stamps, (i - 1) * WIDTH + 1, i * WIDTH)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- The first unit with this stamp. Units of several attempts may share one: they are alike, so any of them will do.
local low, high = 1, count + 1
while low < high do
  local middle = math.floor((low + high) / 2)
  if stamp_at(middle) >= stamp then
    high = middle
  else
    low = middle + 1
  end
end
local given = 0
while given < cost and low + given <= count and stamp_at(low + given) == stamp do
  given = given + 1
end
if given == 0 then
  return 0
end

-- After the longest window the units are out of the log, so the mark need not outlive it.
if not redis.call('SET', refund, '1', 'NX', 'PX', longest + 1) then
  return 0
end

local rest = string.sub(stamps, 1, (low - 1) * WIDTH) .. string.sub(stamps, (low + given - 1) * WIDTH + 1)
if rest == '' then
  redis.call('DEL', log)
  return given
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
stamps, count = rest, #rest / WIDTH
local ttl = longest + 1 - math.floor((now - stamp_at(count)) / 1000)
if ttl > 0 then
  redis.call('SET', log, rest, 'PX', math.min(ttl, longest + 1))
else
  redis.call('DEL', log)
end
return given
