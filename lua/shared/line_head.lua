-- Finds the head of the line. Once there may be a claim for it, its process has 300 ms for its next call.
-- Waiters of silent processes lose their places, until their process calls again: see the block line_join.
-- head is a member of the line or nil, whose its process, alive the moment until which that is taken to be
-- alive; told says that its 300 ms begin now, and the caller tells it. process makes this call, and free is
-- whether there may be a claim for the head.
-- needs: line, present, now, process, free
-- gives: head, whose, alive, told

local head, whose, alive, told
repeat
  head = redis.call('ZRANGEBYSCORE', line, '-inf', '+inf', 'LIMIT', 0, 1)[1]
  whose = string.match(head or '', '^[^|]*')
  alive = tonumber(redis.call('ZSCORE', present, whose) or 0)
  local gone = head and (alive <= now or alive > now + 3000) -- later: the clock was set back
  if gone then
    redis.call('ZREM', line, head)
  elseif head and free and whose ~= process and alive > now + 300 then
    alive, told = now + 300, true
    redis.call('ZADD', present, alive, whose)
  end
until not gone
