-- Autocomplete: puts a name into a room. A refused attempt writes nothing.
--
-- KEYS  1 names  sorted set of the names in the room; all scores are 0, so the order is that of the bytes
-- ARGV  1 name   any bytes
--       2 most   names that a room has at most
--       3 keep   milliseconds that the room is kept after the latest join
-- Returns ok (the name is in the room) or full.

local names = KEYS[1]
local name, most, keep = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if not redis.call('ZSCORE', names, name) and redis.call('ZCARD', names) >= most then
  return 'full'
end
redis.call('ZADD', names, 0, name)
redis.call('PEXPIRE', names, keep)
return 'ok'
