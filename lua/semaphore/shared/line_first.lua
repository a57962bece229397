-- Finds the first in line behind skip others. Waiters of processes that are silent lose their places, until their
-- process calls again: see semaphore_wait. head is a member of the line or nil, place its place, whose its
-- process, alive the moment until which that is taken to be alive.
-- needs: line, present, now, skip
-- gives: head, place, whose, alive

local head, place, whose, alive
repeat
  local found = redis.call('ZRANGE', line, skip, skip, 'WITHSCORES')
  head, place = found[1], tonumber(found[2])
  whose = string.match(head or '', '^[^|]*')
  alive = tonumber(redis.call('ZSCORE', present, whose) or 0)
  local silent = head and (alive <= now or alive > now + 3000) -- later: the clock was set back
  if silent then
    redis.call('ZREM', line, head)
    redis.call('ZREM', present, whose)
  end
until not silent
