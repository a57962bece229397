-- Sliding window: charges the units that one admitted attempt has cost beyond those that it took, exactly
-- once. They count as taken now, also beyond max, and attempts are refused until enough units have left. A
-- log keeps the form that it has; the next attempt makes it anew where its limit has another.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 log            list, as sliding_window and sliding_windows write it; further limits have their logs
--                        in 3, 4 and so on
-- ARGV  1 max, 2 window  as for the script that allowed the attempt; further limits follow
--       then cost        units to charge, 1 or more. A log one by one gets 10,000 of them at most, and has no
--                        more; a part has 1,000,000,000 at most. No limit is larger, so more would change
--                        nothing
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have charged them already; absent
--                        or empty: 0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   as for sliding_windows
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

for i = 1, limits do
  local log, window, part = KEYS[i + 1], ARGV[i * 2] * 1000, tonumber(ARGV[limits * 2 + 4 + i]) or 0
  local header = redis.call('LINDEX', log, '0')
  local birth, units, last = now, 0, nil -- last: the newest part and its units, or the newest unit
  if header then
    local born, had, sum = string.match(header, '^(%d+) ?(%d*) ?(%d*)$')
    birth, part, units = born + 0, tonumber(had) or 0, tonumber(sum) or 0
    last = redis.call('LRANGE', log, part > 0 and '-2' or '-1', '-1')
  end
  local grain = part > 0 and part or window > 26843545600 and math.ceil(window / 268435456) or 100
  local unit = math.ceil(now / grain) - math.ceil(birth / grain)
  if last then -- units of the future come last: the clock was set back
    unit = math.max(unit, last[1] + 0)
  end

  if part > 0 then
    local newest = last and last[1] - unit == 0 and last[2] + 0 or 0
    local more = math.min(cost, math.max(1000000000 - newest, 0))
    header = string.format('%.0f %.0f %.0f', birth, part, units + more)
    if not last then
      redis.call('RPUSH', log, header, unit, more)
    else
      if last[1] - unit == 0 then
        redis.call('LSET', log, '-1', newest + more)
      else
        redis.call('RPUSH', log, unit, more)
      end
      redis.call('LSET', log, '0', header)
    end
    redis.call('PEXPIRE', log, math.ceil((part + window) / 1000) + 1000)
  else
    local count, more, numbers = last and redis.call('LLEN', log) - 1 or 0, math.min(cost, 10000), {}
    if not last then
      header = string.format('%.0f', birth)
      redis.call('RPUSH', log, header)
    end
    for n = 1, math.min(more, 1000) do -- a call takes only so many arguments
      numbers[n] = unit
    end
    for from = 1, more, 1000 do
      redis.call('RPUSH', log, unpack(numbers, 1, math.min(more - from + 1, 1000)))
    end
    local excess = count + more - 10000
    if excess > 0 then
      redis.call('LTRIM', log, excess, '-1')
      redis.call('LSET', log, '0', header)
    end
    redis.call('PEXPIRE', log, math.ceil((grain + window * 2.25) / 1000) + 1000) -- the most of sliding_window
  end
end
return 1
