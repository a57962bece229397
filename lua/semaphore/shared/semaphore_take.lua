-- Takes a holder's permits.
-- needs: cost, permits, now, lease, holder, held
-- gives: held

redis.call('ZADD', permits, now + lease, cost .. '|' .. holder)
held = held + cost
