-- Reads the beginning of a log of units one by one. Needs log, grain, window, and at, now in grains. Gives
-- birth and base, when the log began, in microseconds and in grains, or nil without a log; count, its units;
-- gone, 0; and next, when the head leaves. Returns from the script where sliding_windows has to make the log
-- anew.

local head, count, gone = redis.call('LRANGE', log, '0', '1'), 0, 0
local birth, base, next = head[1], nil, nil
if birth then
  local begun = tonumber(birth) or 0
  base = (begun + -begun % grain) / grain
  -- A log by parts, one whose numbers become long, or one with units of the future: the clock was set back.
  if base == 0 or at - base > 2147483647 or redis.call('LINDEX', log, '-1') + base > at then
    return {2}
  end
  count = redis.call('LLEN', log) - 1
  next = (base + head[2]) * grain + window
end
