-- Token bucket: settles one admitted attempt, exactly once: gives back units that it did not use, or charges
-- those that it used beyond the units that it took. Units come back to those of its buckets that have not
-- been full since; a bucket takes back at most what fills it. A bucket that does not have what is charged
-- owes it: it is empty until as much has flowed in. Then it is full 366 days later than an empty bucket at
-- the latest; it does not owe what would take longer.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 bucket         string, as token_bucket writes it; further limits have their buckets in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for token_bucket when it allowed the attempt; further limits follow
--       then units       to give back, of those that the attempt took; below 0: to charge
--       then stamp       what token_bucket returned for it
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have settled it already; absent or empty:
--                        0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns the units given back, if a bucket took any of them, or charged; 0: also where an earlier call has
--         settled it
--         -1: an earlier call may have done it, and its name is not known any more

local refunds, limits = KEYS[1], #KEYS - 1
local units, stamp, name = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0, ARGV[limits * 2 + 3]
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

local LONGEST = 366 * 86400000000
local settled = 0
for i = 1, limits do
  local key, max, window = KEYS[i + 1], ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local since, offset, taken, held, last, full = now, 0, 0, max, now, now
  local s, o, t, m, l = string.match(redis.call('GET', key) or '', '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
  if s and s + o + span(t + 0, m + 0, window) > now then -- else it is full
    since, offset, taken, held, last = s + 0, o + 0, t + 0, m + 0, s + (tonumber(l) or 0)
    full = since + offset + span(taken, held, window)
  end
  local changed = true
  if units < 0 then
    local times = math.min(math.floor(-units / max), math.floor(LONGEST / window) + 1)
    local rest = -units % max
    offset, last = offset + times * window, math.max(last, now)
    if held ~= max then -- the limit was changed since
      offset = offset + span(rest, max, window)
    else
      taken = taken + rest
      if taken >= max then
        taken, offset = taken - max, offset + window
      end
    end
    offset = offset - math.max(since + offset + span(taken, held, window) - (now + window + LONGEST), 0)
  elseif now < full and now < stamp + window and since <= stamp and stamp <= last then
    if held ~= max then -- as time: a microsecond of it remains here at most
      offset = offset - math.max(span(units, max, window) - 1, 0)
    else
      taken = taken - units
      if taken < 0 then
        taken, offset = taken + max, offset - window
      end
    end
  else
    -- It was full after the attempt, so it has regained the units, or its clock was set back since.
    changed = false
  end
  full = since + offset + span(taken, held, window)
  if changed and full <= now then
    redis.call('DEL', key)
  elseif changed then
    local after = last > since and string.format(' %.0f', last - since) or ''
    redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', since, offset, taken, held) .. after, 'PX',
      life(since, offset, taken, held, window))
  end
  settled = changed and math.abs(units) or settled
end
return settled
