-- Keeps the lock until its lease is over, and the last fence for a day more: a clock that is set back by less
-- takes no fence back.
-- needs: lock, lease

redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease + 86400000))
