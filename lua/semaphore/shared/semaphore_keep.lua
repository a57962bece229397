-- Keeps the permits for longer than the longest lease, which is an hour, or as long as the last fence.
-- needs: permits, keep

redis.call('PEXPIRE', permits, keep or '3601000')
