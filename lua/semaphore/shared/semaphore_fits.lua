-- Looks whether there are permits for a waiter: fits. If not, and some are free, it holds up those behind it for
-- 300 ms, counted from the first such waiter since one at the head was served; then it is passed, and so are up
-- to a hundred. skip is how many in front of it are passed.
-- needs: head, held, present, now, skip
-- gives: cost, fits, passed

local most, cost = string.match(head or '', '^[^|]*|(%d+)|(%d+)|')
local fits, passed = head and held + cost <= tonumber(most), false
if fits and skip == 0 then
  redis.call('ZREM', present, '')
elseif head and not fits and held < tonumber(most) then
  local since = tonumber(redis.call('ZSCORE', present, '') or now + 1)
  if since > now then -- it begins; or the clock was set back
    since = now
    redis.call('ZADD', present, since, '')
  end
  passed = now - since >= 300 and skip < 100
end
