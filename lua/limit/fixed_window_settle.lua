-- Fixed window: settles one admitted attempt, exactly once: gives back units that it did not use, or charges
-- those that it used beyond the units that it took. Units come back to those of its windows that are still
-- open; a window that has got all its units back is deleted. Charged ones count in the windows that are open
-- now, also beyond max; a window that is not open begins with them.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were settled
--       2 count          string, as fixed_window writes it; further limits have their counts in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for fixed_window when it allowed the attempt; further limits follow
--       then units       to give back, of those that the attempt took; below 0: to charge. A window has
--                        2^53-1 at most
--       then stamp       what fixed_window returned for it
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       milliseconds since the first call that may have settled it already; absent or empty:
--                        0, this is the first
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns the units given back to the limit that got the most, or charged; 0: also where an earlier call has
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

local settled = 0
for i = 1, limits do
  local key, window = KEYS[i + 1], ARGV[i * 2] * 1000
  local over, taken = string.match(redis.call('GET', key) or '', '(%d+) (%d+)')
  over, taken = (over or 0) + 0, (taken or 0) + 0
  local open, changed = now < over, nil
  if units < 0 then
    changed = -units
    taken = math.min((open and taken or 0) + changed, 9007199254740991)
    over = math.min(open and over or now + window, now + window) -- a window of the future begins now
  elseif open and over - window <= stamp and stamp < over then -- else it is another one, or the clock was set
    changed = math.min(units, taken)
    taken, over = taken - changed, math.min(over, now + window)
  end
  if changed and taken == 0 then
    redis.call('DEL', key)
  elseif changed then
    redis.call('SET', key, string.format('%.0f %.0f', over, taken), 'PX',
      math.ceil((over - now) / 1000) + 1000)
  end
  settled = math.max(settled, changed or 0)
end
return settled
