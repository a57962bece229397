-- Token bucket: charges the units that one admitted attempt has cost beyond those that it took, exactly once.
-- A bucket that does not have them owes them: it is empty until as many have flowed in. Then it is full 366
-- days later than an empty bucket at the latest; it does not owe what would take longer.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 bucket         string, as token_bucket writes it; further limits have their buckets in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for token_bucket when it allowed the attempt; further limits follow
--       then cost        units to charge, 1 or more
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have charged them already; absent
--                        or empty: 0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns 1: this call has charged them; 0: an earlier one has
--         -1: an earlier call may have done it, and its name is not known any more.

local refunds, limits = KEYS[1], #KEYS - 1
local cost, name = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2]
local again, now = tonumber(ARGV[limits * 2 + 3]) or 0, tonumber(ARGV[limits * 2 + 4])
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

for i = 1, limits do
  local key, max, window = KEYS[i + 1], ARGV[i * 2 - 1] + 0, ARGV[i * 2] * 1000
  local since, offset, taken, held, last = now, 0, 0, max, now
  local bucket = redis.call('GET', key)
  if bucket then
    local s, o, t, m, l = string.match(bucket, '(%S+) (%S+) (%S+) (%S+) ?(%S*)')
    if s + o + span(t + 0, m + 0, window) > now then
      since, offset, taken, held = s + 0, o + 0, t + 0, m + 0
      last = math.max(since + (tonumber(l) or 0), now)
    end
  end
  local times, rest = math.min(math.floor(cost / max), math.floor(LONGEST / window) + 1), cost % max
  offset = offset + times * window
  if held == max then
    taken = taken + rest
    if taken >= max then
      taken, offset = taken - max, offset + window
    end
  else -- the limit was changed since
    offset = offset + span(rest, max, window)
  end
  local full, latest = since + offset + span(taken, held, window), now + window + LONGEST
  if full > latest then
    offset = offset - full + latest
  end
  local after = last > since and string.format(' %.0f', last - since) or ''
  redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', since, offset, taken, held) .. after, 'PX',
    life(since, offset, taken, held, window))
end
return 1
