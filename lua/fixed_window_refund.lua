-- Fixed window: gives back the units of one admitted attempt, exactly once, to those of its windows that are
-- still open. A window that has got all its units back is deleted.
--
-- KEYS  1 refund         string, marks this attempt as given back
--       2 count          string, as fixed_window writes it; further limits have their counts in 3, 4 and so
--                        on
-- ARGV  1 max, 2 window  as for fixed_window when it allowed the attempt; further limits follow
--       then cost        units that the attempt took
--       then stamp       what fixed_window returned for it
--       then now         microseconds since 1970; absent or empty: the server's clock
-- Returns the number of units given back to the limit that got the most.

local refund, limits = KEYS[1], #KEYS - 1
local cost, stamp, now = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0, tonumber(ARGV[limits * 2 + 3])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

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
  local key, window = KEYS[i + 1], ARGV[i * 2] * 1000
  local count = redis.call('GET', key)
  if count then
    local over, taken = string.match(count, '(%d+) (%d+)')
    over, taken = over + 0, taken + 0
    -- A window that began after the attempt is another one.
    if over - window <= stamp and now < over then
      local back = math.min(cost, taken)
      if back < taken then
        redis.call('SET', key, string.format('%.0f %.0f', over, taken - back), 'PX', math.ceil((over - now) / 1000) + 1000)
      else
        redis.call('DEL', key)
      end
      given = math.max(given, back)
    end
  end
end
return given
