-- Token bucket: gives back the units of one admitted attempt, exactly once, to those of its buckets that have
-- not been full since. A bucket takes back at most what fills it.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 bucket         string, as token_bucket writes it; further limits have their buckets in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for token_bucket when it allowed the attempt; further limits follow
--       then cost        units to give back, of those that the attempt took
--       then stamp       what token_bucket returned for it
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have given them back already; absent
--                        or empty: 0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns the cost when a bucket took any of it back, else 0.
--         -1: an earlier call may have done it, and its name is not known any more.

local refunds, limits = KEYS[1], #KEYS - 1
local cost, stamp, name = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0, ARGV[limits * 2 + 3]
local again, now = tonumber(ARGV[limits * 2 + 4]) or 0, tonumber(ARGV[limits * 2 + 5])
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

local given = 0
for i = 1, limits do
  local key, max, window = KEYS[i + 1], ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local bucket = redis.call('GET', key)
  if bucket and now < stamp + window then
    local s, o, t, m, l = string.match(bucket, '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
    local since, offset, taken, held = s + 0, o + 0, t + 0, m + 0
    local full = since + offset + span(taken, held, window)
    -- A bucket that was full after the attempt has already regained the units. If its last units were taken
    -- before the attempt, the clock was set back since.
    if since <= stamp and stamp <= since + (tonumber(l) or 0) and now < full then
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
        local last = l ~= '' and ' ' .. l or ''
        redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', since, offset, taken, held) .. last,
          'PX', life(since, offset, taken, held, window))
      else
        redis.call('DEL', key)
      end
      given = cost
    end
  end
end
return given
