-- Fixed window: gives back the units of one admitted attempt, exactly once, to those of its windows that go on. A window
-- that has all its units back is as if it had never begun.
--
-- KEYS  1 refund         string, marks this attempt as given back
--       2 count          string, as fixed_window writes it; further limits have their counts in 3, 4 and so on
-- ARGV  1 max, 2 window  as for fixed_window when it allowed the attempt; further limits follow
--       then cost        units that the attempt took
--       then stamp       what fixed_window returned for it
-- Returns the number of units given back to the limit that got most back.

local refund, limits = KEYS[1], #KEYS - 1
local cost, stamp = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0

local longest = 0
for i = 1, limits do
  longest = math.max(longest, ARGV[i * 2] + 0)
end

-- The mark outlives the counts of the windows that are open now, so a second refund finds the one or misses the other.
if not redis.call('SET', refund, '1', 'NX', 'PX', longest + 2000) then
  return 0
end

local given = 0
for i = 1, limits do
  local key, window = KEYS[i + 1], ARGV[i * 2] * 1000
  local count = redis.call('GET', key)
  if count then
    local over, taken = string.match(count, '(%d+) (%d+)')
    -- A window that began later is another one: this attempt's has ended.
    if over - window <= stamp then
      local back = math.min(cost, taken + 0)
      if back < taken + 0 then
        redis.call('SET', key, string.format('%s %.0f', over, taken - back), 'KEEPTTL')
      else
        redis.call('DEL', key)
      end
      given = math.max(given, back)
    end
  end
end
return given
