-- Sliding window: takes the units of one admitted attempt out of the logs again, exactly once. Those that have left a log by
-- themselves stay out of it.
--
-- KEYS  1 refund         string, marks this attempt as given back
--       2 log            list, as sliding_window writes it; further limits have their logs in 3, 4 and so on
-- ARGV  1 max, 2 window  as for sliding_window when it allowed the attempt; further limits follow
--       then cost        units that the attempt took
--       then stamp       what sliding_window returned for it
-- Returns the number of units given back to the limit that got most back.

local refund, limits = KEYS[1], #KEYS - 1
local cost, stamp = ARGV[limits * 2 + 1], ARGV[limits * 2 + 2]

local longest = 0
for i = 1, limits do
  longest = math.max(longest, ARGV[i * 2] + 0)
end

-- The mark is for units of other attempts with the same stamp: without any, a second call would find nothing anyway. So it need
-- not last long, and must not, because refused requests give back what earlier rules took: each leaves a mark.
if not redis.call('SET', refund, '1', 'NX', 'PX', math.min(longest, 60000) + 2000) then
  return 0
end

local given = 0
for i = 1, limits do
  -- Units of several attempts may have one stamp. They are alike, so it does not matter whose are removed.
  local removed = redis.call('LREM', KEYS[i + 1], cost, stamp)
  if removed > 0 then
    given = math.max(given, removed)
    redis.call('PEXPIRE', KEYS[i + 1], math.ceil(ARGV[i * 2] * 2.25) + 1) -- the head may be another now
  end
end
return given
