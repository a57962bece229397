-- Autocomplete: takes a name out of a room.
--
-- KEYS  1 names  sorted set, as join writes it
-- ARGV  1 name   any bytes
-- Returns 1 when the name was in the room, else 0.

return redis.call('ZREM', KEYS[1], ARGV[1])
