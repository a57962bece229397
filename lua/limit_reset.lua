-- Limits and bans: forgets all that has been taken from limits, whatever their algorithm, or all that is held
-- against an actor (see ban.lua).
--
-- KEYS  1 limit  as its algorithm keeps it; further limits follow in 2, 3 and so on. Or the two keys of
--                ban.lua
-- ARGV  none
-- Returns the number of keys in which there was anything.

return redis.call('UNLINK', unpack(KEYS))
