-- Sliding window: removes the units of one admitted attempt from the logs, exactly once. Units that have
-- already left a log are not given back.
--
-- KEYS  1 refunds        string, the names of the last attempts of this actor that were given back
--       2 log            list, as sliding_window and sliding_windows write it; further limits have their logs
--                        in 3, 4 and so on
-- ARGV  1 max, 2 window  as for the script that allowed the attempt; further limits follow
--       then cost        units that the attempt took
--       then stamp       what the script returned for it
--       then name        of the attempt among the refunds, 7 characters without a space
--       then again       boolean: an earlier call may have given the units back; absent or empty: 0
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   as for sliding_windows
-- Returns the number of units given back to the limit that got most back.
--         -1: an earlier call may have done it, and its name is not known any more.

local refunds, limits = KEYS[1], #KEYS - 1
local cost, stamp, name = ARGV[limits * 2 + 1] + 0, ARGV[limits * 2 + 2] + 0, ARGV[limits * 2 + 3]
local again, now = ARGV[limits * 2 + 4] == '1', tonumber(ARGV[limits * 2 + 5])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local WRAP = 1000000000000000

-- shared refund_once
-- Names of 7 characters, the last at the end. When there are as many as are kept, earlier ones may be
-- forgotten; so a call that is certainly the first goes on, and one that may be a repetition does not.
local REMEMBER, MOST = 120000, 120
local names = redis.call('GET', refunds) or ''
if string.find(names, name .. ' ', 1, true) then
  return 0
end
if again and #names >= MOST * 8 then
  return -1
end
redis.call('SET', refunds, string.sub(names .. name .. ' ', -MOST * 8), 'PX', REMEMBER)
-- end refund_once

-- Units of several attempts may share a moment. They are equal, so any of them may be removed.
local function one_by_one(log, window)
  local grain = window > 26843545600 and math.ceil(window / 268435456) or 100
  local unit = (math.ceil(stamp / grain) + 2147483648) % 4294967296 - 2147483648
  local removed = redis.call('LREM', log, cost, unit)
  local head = removed > 0 and redis.call('LINDEX', log, '0')
  if head then -- the head may have changed: renew the TTL as sliding_window.lua does
    local leaves
    -- shared window_leaves
    leaves = function(unit, at, grain, window)
      local age = (at - unit + 2147483648) % 4294967296 - 2147483648
      return (at - age) * grain + window
    end
    -- end window_leaves
    local next = math.max(leaves(head, math.ceil(now / grain), grain, window), now)
    redis.call('PEXPIRE', log, math.ceil((next - now + window * 1.25) / 1000) + 1000)
  end
  return removed
end

-- The units of a part are its sum minus the sum before it. Those of the first pair have left. All sums from
-- the part on decrease.
local function by_parts(log, part)
  local at, numbers = math.ceil(stamp / part), redis.call('LRANGE', log, '-4', '-1')
  if numbers[1] and numbers[1] - at >= 0 then -- the part is older than the last one
    numbers = redis.call('LRANGE', log, '0', '-1')
  end
  for n = 3, #numbers, 2 do
    if numbers[n] - at == 0 then
      local removed = math.min(cost, (numbers[n + 1] - numbers[n - 1]) % WRAP)
      for later = n + 1, #numbers, 2 do
        redis.call('LSET', log, later - #numbers - 1, (numbers[later] - removed) % WRAP)
      end
      return removed
    end
  end
  return 0
end

local given = 0
for i = 1, limits do
  local log, window, part = KEYS[i + 1], ARGV[i * 2] * 1000, (ARGV[limits * 2 + 5 + i] or 0) + 0
  if part == 0 then
    given = math.max(given, one_by_one(log, window))
  else
    given = math.max(given, by_parts(log, part))
  end
end
return given
