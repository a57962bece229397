-- Token buckets: a bucket holds `max` units, and an empty bucket fills at a steady rate in `window`; for
-- several limits at once, all or nothing. token_bucket.lua decides a single limit, on the same bucket, and
-- leaves it to this one when the bucket had another max or the clock was set back. It is the Generic Cell
-- Rate Algorithm of the ATM Forum (Traffic Management Specification 4.1): it stores the moment at which the
-- bucket will be full. A refused attempt writes nothing. But any attempt rewrites a bucket whose last units
-- were taken later than now, with all its moments earlier by that much: the clock was set back, and nobody
-- knows how long before now they were taken.
--
-- KEYS  1 bucket         string of numbers, of which the bucket is full at since + offset + taken * window /
--                        max: since, when it was last full, in microseconds since 1970; offset, in
--                        microseconds; taken; max; and, unless it is 0, how long after since the last units
--                        were taken, in microseconds. No key: a full bucket. Further limits have their
--                        buckets in 2, 3 and so on
-- ARGV  1 max, 2 window  units, 10,000,000 at most, and milliseconds; further limits follow in 3 and 4, 5 and
--                        6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent or empty: 1; 0:
--                        take none, and answer whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}
--       remaining  whole units left in the binding limit
--       stamp      the moment of admission in microseconds, for token_bucket_settle
--       retry      microseconds until the same cost fits every limit, rounded up
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one with
--                  the longest wait
--       resets     microseconds until the next unit is there; 0 when the bucket is full

local limits = #KEYS
local cost, now = tonumber(ARGV[limits * 2 + 1]) or 1, tonumber(ARGV[limits * 2 + 2])
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

local binding, remaining, retry
local buckets, resets = {}, {}
local after = {} -- the buckets when the units are taken

-- Writes a bucket. Its key keeps the TTL of the bucket as it was before, if that is given and long enough.
local function write(i, b, before)
  local last = b.last > b.since and string.format(' %.0f', b.last - b.since) or ''
  local record = string.format('%.0f %.0f %.0f %.0f', b.since, b.offset, b.taken, b.max) .. last
  if before and before.since == b.since and before.offset == b.offset and before.max == b.max
    and math.ceil(before.taken * 16 / b.max) == math.ceil(b.taken * 16 / b.max) then
    redis.call('SET', KEYS[i], record, 'KEEPTTL')
  else
    redis.call('SET', KEYS[i], record, 'PX', life(b.since, b.offset, b.taken, b.max, ARGV[i * 2] * 1000))
  end
end

for i = 1, limits do
  local bucket = redis.call('GET', KEYS[i])
  if bucket then
    local s, o, t, m, last = string.match(bucket, '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
    local b = {since = s + 0, offset = o + 0, taken = t + 0, max = m + 0}
    b.last = b.since + (tonumber(last) or 0)
    buckets[i] = b
    if b.last > now then
      b.since, b.last = b.since - b.last + now, now
      write(i, b)
    end
  end
end

for i = 1, limits do
  local max, window = ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local b = buckets[i]
  if b and b.max ~= max then
    -- The limit was changed: the bucket will be full at the same moment as before, to the microsecond.
    b = {since = b.since, offset = b.offset + span(b.taken, b.max, window), taken = 0, max = max}
  end
  if not b or b.since + b.offset + span(b.taken, max, window) <= now then
    b = {since = now, offset = 0, taken = 0, max = max}
  end
  local since, offset, taken = b.since, b.offset, b.taken
  -- All units whose span ends at most a window from now may have been taken. The division may be slightly
  -- off; the span is exact.
  local room = now + window - since - offset
  local all = math.max(math.floor(room / window * max) + 1, 0)
  while all > 0 and span(all, max, window) > room do
    all = all - 1
  end

  local left = all - taken
  local wait = left < need and span(taken + need, max, window) - room
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit

  resets[i] = left - cost < max and span(all + 1, max, window) - room or 0
  taken = taken + cost
  if taken >= max then
    taken, offset = taken - max, offset + window
  end
  after[i] = {since = since, offset = offset, taken = taken, max = max, last = now}
end

if retry then
  return {0, remaining, retry, binding}
end

for i = 1, cost > 0 and limits or 0 do
  write(i, after[i], buckets[i])
end
return {1, remaining, now, binding, resets[binding]}
