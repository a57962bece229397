-- Keeps the permits until their leases are over, and a second more.
-- needs: permits, lease

redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
