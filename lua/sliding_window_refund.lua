-- Sliding window: removes the units of one admitted attempt from the logs, exactly once. Units that have
-- already left a log are not given back.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 log            list, as sliding_window and sliding_windows write it; further limits have their logs
--                        in 3, 4 and so on
-- ARGV  1 max, 2 window  as for the script that allowed the attempt; further limits follow
--       then cost        units to give back, of those that the attempt took
--       then stamp       what the script returned for it
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have given them back already; absent
--                        or empty: 0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   as for sliding_windows
-- Returns the number of units given back to the limit that got the most.
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

-- Units of several attempts may share a moment. They are equal, so any of them may be removed. Units that
-- were taken before the log was born, as before a Reset, are not in it.
local function one_by_one(log, window)
  local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
  local birth = tonumber(redis.call('LINDEX', log, '0'))
  if not birth or stamp < birth then
    return 0
  end
  local base = math.ceil(birth / grain)
  local removed = redis.call('LREM', log, -cost, math.ceil(stamp / grain) - base)
  if removed > 0 then
    local head = redis.call('LINDEX', log, '1')
    if head then -- another one maybe, so the TTL is renewed as in sliding_window.lua
      local next = math.max((base + head) * grain + window, now)
      redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000)
    else
      redis.call('DEL', log)
    end
  end
  return removed
end

-- A part is found by halving, since a log may have thousands.
local function by_parts(log, part)
  local head = redis.call('LINDEX', log, '0') or ''
  local birth, had, units = string.match(head, '^(%d+) (%d+) (%d+)$')
  if not birth or had ~= part or stamp < birth + 0 then
    return 0
  end
  local at = math.ceil(stamp / part) - math.ceil(birth / part)
  local low, high = 1, (redis.call('LLEN', log) - 1) / 2 -- the part is one of these
  local middle = high                                    -- most often it is the newest
  while low < high do
    if redis.call('LINDEX', log, middle * 2 - 1) - at <= 0 then
      low = middle
    else
      high = middle - 1
    end
    middle = math.ceil((low + high) / 2)
  end
  if redis.call('LINDEX', log, low * 2 - 1) - at ~= 0 then
    return 0
  end
  local count = redis.call('LINDEX', log, low * 2) + 0
  local removed = math.min(cost, count)
  if units - removed > 0 then
    redis.call('LSET', log, low * 2, count - removed)
    redis.call('LSET', log, '0', string.format('%s %s %.0f', birth, had, units - removed))
  else
    redis.call('DEL', log)
  end
  return removed
end

local given = 0
for i = 1, limits do
  local log, window, part = KEYS[i + 1], ARGV[i * 2] * 1000, ARGV[limits * 2 + 5 + i]
  if not part or part == '0' then
    given = math.max(given, one_by_one(log, window))
  else
    given = math.max(given, by_parts(log, part))
  end
end
return given
