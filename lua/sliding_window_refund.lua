-- Sliding window: takes the units of one admitted attempt out of the logs again, exactly once. Those that have left a log by
-- themselves stay out of it.
--
-- KEYS  1 refund     string, marks this attempt as given back
--       2 log        list, as sliding_window writes it; further limits have their logs in 3, 4 and so on
-- ARGV  1 stamp      what sliding_window returned for the attempt
--       2 cost       units that the attempt took
--       3 remember   milliseconds, in which the same call may be sent again
--       4 window     milliseconds, the first limit's; further limits have theirs in 5, 6 and so on
-- Returns the number of units given back to the limit that got most back.

local refund = KEYS[1]
local stamp, cost, remember = ARGV[1], ARGV[2], ARGV[3]

-- The mark is for units of other attempts with the same stamp: without any, a second call would find nothing anyway.
if not redis.call('SET', refund, '1', 'NX', 'PX', remember) then
  return 0
end

local given = 0
for i = 2, #KEYS do
  -- Units of several attempts may have one stamp. They are alike, so it does not matter whose are removed.
  local removed = redis.call('LREM', KEYS[i], cost, stamp)
  if removed > 0 then
    given = math.max(given, removed)
    redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[i + 2] * 2.25) + 1) -- the head may be another now
  end
end
return given
