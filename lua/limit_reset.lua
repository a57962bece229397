-- Forgets all that has been taken from limits, whatever their algorithm.
--
-- KEYS  1 limit  as its algorithm keeps it; further limits follow in 2, 3 and so on
-- ARGV  none
-- Returns the number of limits from which anything had been taken.

return redis.call('UNLINK', unpack(KEYS))
