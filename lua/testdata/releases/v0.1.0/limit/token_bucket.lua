-- Token bucket: a bucket holds `max` units, and an empty bucket fills at a steady rate in `window`.
-- token_buckets.lua decides several limits at once; for one limit it gives the same answers. This script is
-- the short one for most uses. A refused attempt writes nothing.
--
-- KEYS  1 bucket  string of numbers, of which the bucket is full at since + offset + taken * window / max:
--                 since, when it was last full, in microseconds since 1970; offset, in microseconds; taken;
--                 max; and, unless it is 0, how long after since the last units were taken, in microseconds.
--                 No key: a full bucket
-- ARGV  1 max     units, 10,000,000 at most
--       2 window  milliseconds
--       3 cost    units that this attempt takes, no more than max; absent or empty: 1; 0: take none, and
--                 answer whether one unit would be allowed
--       4 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, 1, resets} when allowed, else {0, remaining, retry}, or -retry if no unit is
--         left; or {2}: nothing is decided, and token_buckets has to, because the bucket had another max, or
--         its last units were taken later than now
--       remaining  whole units left
--       stamp      the moment of admission in microseconds, for token_bucket_settle
--       retry      microseconds until the same cost fits, rounded up
--       resets     microseconds until the next unit is there; 0 when the bucket is full

local key, max, window, cost, now = KEYS[1], ARGV[1] + 0, ARGV[2] * 1000, ARGV[3], ARGV[4]
cost, now = cost and tonumber(cost) or 1, now and tonumber(now)
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

-- shared bucket_span
-- The microseconds in which a bucket gains the units, units * window / max, rounded up. It is exact: all
-- numbers here are integers, and with units below 2 * max none reaches 2^53, as units * window might.
local function span(units, max, window)
  local rest = window % max
  local part = units * rest
  return units * ((window - rest) / max) + (part + -part % max) / max
end
-- end bucket_span

local since, offset, taken, head = now, 0, 0, nil -- head: the text of since and offset, where they stay
local bucket = redis.call('GET', key)
if bucket then
  local s, o, t, held, after = string.match(bucket, '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
  since, offset, taken, head = s + 0, o + 0, t + 0, s .. ' ' .. o
  local last = after ~= '' and since + after or since
  if held ~= ARGV[1] or last > now then -- last > now: the clock was set back
    return {2}
  end
end

-- All units whose span ends at most a window from now may have been taken, and the next one is there when its
-- span ends. The division may be slightly off, so it is made to find too few, by one at most.
local room = now + window - since - offset
local ratio = room / window * max * 0.999999999999999
local all = ratio > 0 and ratio - ratio % 1 or 0
local next = span(all + 1, max, window)
if next <= room then
  all = all + 1
  next = span(all + 1, max, window)
end
local left = all - taken
if left >= max then -- the bucket is full
  since, offset, taken, head = now, 0, 0, nil
  left, room, next = max, window, span(max + 1, max, window)
end
if left < need then
  local retry = (left == need - 1 and next or span(taken + need, max, window)) - room
  return left > 0 and {0, left, retry} or -retry
end
local resets = left - cost < max and next - room or 0
if cost == 0 then
  return {1, left, now, 1, resets}
end

local before = taken
taken = taken + cost
if taken >= max then
  taken, offset, head = taken - max, offset + window, nil
end
-- '%d' costs less than half of '%.0f', but only numbers of 31 bits are safe with it on any server.
local after = now - since
local last = after > 0 and string.format(after < 2147483648 and ' %d' or ' %.0f', after) or ''
local record = string.format(' %d ', taken) .. ARGV[1] .. last
if head and math.ceil(taken * 16 / max) == math.ceil(before * 16 / max) then
  redis.call('SET', key, head .. record, 'KEEPTTL')
else
  -- shared bucket_life
  -- The milliseconds until the bucket is full, had all units been taken of the 16th of max in which the last
  -- one is. So only the first unit of each 16th needs a new TTL. The extra second covers a pause of the
  -- server between the script's start, from which a TTL counts, and its TIME. After the clock was set back, a
  -- bucket to which units were given back may be full already.
  local function life(since, offset, taken, max, window)
    local parts = math.ceil(taken * 16 / max)
    return math.max(math.ceil((since + offset + parts * window / 16 - now) / 1000), 0) + 1001
  end
  -- end bucket_life
  head = head or string.format('%.0f %.0f', since, offset)
  redis.call('SET', key, head .. record, 'PX', life(since, offset, taken, max, window))
end
return {1, left - cost, now, 1, resets}
