-- Fixed window: charges the units that one admitted attempt has cost beyond those that it took, exactly once.
-- They count in the windows that are open now, also beyond max; a window that is not open begins with them.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 count          string, as fixed_window writes it; further limits have their counts in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for fixed_window when it allowed the attempt; further limits follow
--       then cost        units to charge, 1 or more. A window has 2^53-1 at most
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
  local key, window = KEYS[i + 1], ARGV[i * 2] + 0
  local over, taken = string.match(redis.call('GET', key) or '', '(%d+) (%d+)')
  if over and over - now > 0 then
    taken = math.min(taken + cost, 9007199254740991)
    redis.call('SET', key, string.format('%.0f %.0f', over + 0, taken), 'KEEPTTL')
  else
    redis.call('SET', key, string.format('%.0f %.0f', now + window * 1000, cost), 'PX', window + 1000)
  end
end
return 1
