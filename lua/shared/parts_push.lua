-- Adds cost units to a log by parts. Needs log, part, window, now, cost, gone and next, as parts_head gives
-- them; at, the number of now's part, and base, that of the birth's; newest, that of the newest part, and
-- last, a list that ends with its units; and head, the header that the log has afterwards.

if not next then -- as in window_push
  redis.call('RPUSH', log, head, '0', cost)
  if gone > 0 then
    redis.call('LTRIM', log, gone + 1, '-1')
  end
else
  if newest == at then
    redis.call('LSET', log, '-1', last[#last] + cost)
  else
    redis.call('RPUSH', log, at - base, cost)
  end
  if gone > 0 then
    redis.call('LTRIM', log, gone, '-1')
  end
  redis.call('LSET', log, '0', head)
end
if not next or newest ~= at then
  redis.call('PEXPIRE', log, math.ceil((at * part + window - now) / 1000) + 1000)
end
