-- Token bucket: gives back the units of one admitted attempt, exactly once, to those of its buckets that have
-- not been full since. A bucket takes back at most what fills it.
--
-- KEYS  1 refund         string, marks this attempt as given back
--       2 bucket         string, as token_bucket writes it; further limits have their buckets in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for token_bucket when it allowed the attempt; further limits follow
--       then cost        units that the attempt took
--       then stamp       what token_bucket returned for it
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns the cost when a bucket took any of it back, else 0.

local refund, limits = KEYS[1], #KEYS - 1
local cost, stamp, now = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0, tonumber(ARGV[limits * 2 + 3])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

-- shared bucket_span
-- The microseconds in which a bucket gains the units, units * window / max, rounded up. It is exact: all
-- numbers here are integers, and with units below 2 * max none reaches 2^53, as units * window might.
local function span(units, max, window)
  local rest = window % max
  return units * ((window - rest) / max) + math.ceil(units * rest / max)
end
-- end bucket_span

-- shared refund_once
local longest = 0
for i = 1, limits do
  longest = math.max(longest, ARGV[i * 2] + 0)
end

-- The mark must be short-lived: a refused request gives back what earlier rules took, and each refund leaves
-- a mark. An attempt that is older than a mark lasts is not given back.
local REMEMBER = 600000
if now - stamp > REMEMBER * 1000 then
  return 0
end
if not redis.call('SET', refund, '1', 'NX', 'PX', math.min(longest, REMEMBER) + 2000) then
  return 0
end
-- end refund_once

local given = 0
for i = 1, limits do
  local key, max, window = KEYS[i + 1], ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local bucket = redis.call('GET', key)
  if bucket and now < stamp + window then
    local s, o, t, m = string.match(bucket, '(%S+) (%S+) (%S+) (%S+)')
    local since, offset, taken, held = s + 0, o + 0, t + 0, m + 0
    local full = since + offset + span(taken, held, window)
    -- A bucket that was full after the attempt has already regained the units.
    if since <= stamp and now < full then
      if held == max then
        taken = taken - cost
        if taken < 0 then
          taken, offset = taken + max, offset - window
        end
      else
        -- The limit was changed since. The units took time; less than a microsecond of it remains here.
        offset = offset - math.max(span(cost, max, window) - 1, 0)
      end
      full = since + offset + span(taken, held, window)
      if now < full then
        redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', since, offset, taken, held),
          'PX', math.ceil((full - now) / 1000) + 1000)
      else
        redis.call('DEL', key)
      end
      given = cost
    end
  end
end
return given
