-- All guards: deletes keys, such as the units taken from limits, an actor's strikes and ban, or an operation.
--
-- KEYS  1 key  of any type; further keys follow in 2, 3 and so on
-- ARGV  none
-- Returns the number of keys that existed.

return redis.call('UNLINK', unpack(KEYS))
