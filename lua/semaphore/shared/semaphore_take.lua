-- Takes a holder's permits, with the next fence if the pool has fences. Forgets permits whose lease is over.
-- needs: permits, lease, holder, cost, keep, micro, now, held, over, fence
-- gives: fence

fence = keep and math.max(fence + 1, micro) or nil
redis.call('ZADD', permits, now + lease, holder, -(fence or held + cost), '')
if over then
  redis.call('ZREMRANGEBYSCORE', permits, 0, now)
end
