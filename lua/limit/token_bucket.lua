-- Token buckets: a bucket holds `max` units, and an empty bucket fills at a steady rate in `window`; for one
-- or several limits, all or nothing. It is the Generic Cell Rate Algorithm of the ATM Forum (Traffic
-- Management Specification 4.1): it stores the moment at which the bucket will be full. A refused attempt
-- writes nothing. But any attempt rewrites a bucket whose last units were taken later than now, with all its
-- moments earlier by that much: the clock was set back, and nobody knows how long before now they were taken.
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
-- Returns "remaining stamp resets limit" when allowed, else {0, remaining, retry, limit}, or -retry
--         where a single limit has no unit left
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

local binding, remaining, retry, resets
local records, lives = {}, {} -- of the buckets when the units are taken; a life of nil: the key keeps its TTL
for i = 1, limits do
  local max, window = ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local since, offset, taken, head = now, 0, 0, nil -- head: the text of since and offset, where they stay
  local bucket = redis.call('GET', KEYS[i])
  if bucket then
    local s, o, t, held, after = string.match(bucket, '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
    since, offset, taken, head = s + 0, o + 0, t + 0, s .. ' ' .. o
    local late = after ~= '' and since + after - now or since - now
    if late > 0 then
      since = since - late
      head = string.format('%.0f %s', since, o)
      bucket = string.format('%s %s %s', head, t, held)
      if now > since then
        bucket = string.format('%s %.0f', bucket, now - since)
      end
      redis.call('SET', KEYS[i], bucket, 'PX', life(since, offset, taken, held + 0, window))
    end
    if held ~= ARGV[i * 2 - 1] then
      -- The limit was changed: the bucket will be full at the same moment as before, to the microsecond.
      offset, taken, head = offset + span(taken, held + 0, window), 0, nil
    end
  end

  -- All units whose span ends at most a window from now may have been taken, and the next one is there when
  -- its span ends. The division may be slightly off, so it is made to find too few, by one at most.
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

  local wait = left < need and (left == need - 1 and next or span(taken + need, max, window)) - room
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit
  if binding == i then
    resets = left - cost < max and next - room or 0
  end
  if cost > 0 and not retry then
    local before = taken
    taken = taken + cost
    if taken >= max then
      taken, offset, head = taken - max, offset + window, nil
    end
    if not head or math.ceil(taken * 16 / max) ~= math.ceil(before * 16 / max) then
      lives[i] = life(since, offset, taken, max, window)
    end
    local last = now > since and string.format(' %d', now - since) or ''
    head = head or string.format('%d %d', since, offset)
    records[i] = head .. string.format(' %d ', taken) .. ARGV[i * 2 - 1] .. last
  end
end
if retry then
  return (limits > 1 or remaining > 0) and {0, remaining, retry, binding} or -retry
end

for i = 1, cost > 0 and limits or 0 do
  if lives[i] then
    redis.call('SET', KEYS[i], records[i], 'PX', lives[i])
  else
    redis.call('SET', KEYS[i], records[i], 'KEEPTTL')
  end
end
return string.format('%d %d %d %d', remaining, now, resets, binding)
