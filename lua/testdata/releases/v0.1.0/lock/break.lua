-- Lock: takes a lock away from who holds it, for an operator. The next renewal tells the holder. The last
-- fence stays.
--
-- KEYS  1 lock  hash, as lock_acquire writes it
-- ARGV  none
-- Returns 1 when somebody held the lock, or had not given it back when the lease was over; else 0.

return math.min(redis.call('HDEL', KEYS[1], 'holder', 'ends'), 1)
