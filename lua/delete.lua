-- All guards: deletes keys, such as all that has been taken from limits, all that is held against an actor, an
-- operation.
--
-- KEYS  1 key  of any type; further keys follow in 2, 3 and so on
-- ARGV  none
-- Returns the number of keys in which there was anything.

return redis.call('UNLINK', unpack(KEYS))
