-- Keeps the permits until their leases are over, and a second more. Needs permits and lease.

redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
