-- Finds the head of the line. Waiters of processes that are gone lose their places. head is a member of the
-- line or nil, whose its process.
-- needs: line, present, now
-- gives: head, whose

local head, whose
repeat
  head = redis.call('ZRANGEBYSCORE', line, '-inf', '+inf', 'LIMIT', 0, 1)[1]
  whose = string.match(head or '', '^[^|]*')
  local ends = tonumber(redis.call('ZSCORE', present, whose) or 0)
  local gone = head and (ends <= now or ends > now + 3000) -- later: the clock was set back
  if gone then
    redis.call('ZREM', line, head)
  end
until not gone
