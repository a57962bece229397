-- All guards: writes something that changes nothing: a key expires when it would have, to the millisecond. It
-- makes a connection that only read, such as one that heard a stored answer, one that has written, so that
-- WAIT on it waits for all that was written before, by whomever.
--
-- KEYS  1 key  that exists and expires
-- ARGV  none
-- Returns 1, or 0 when there is no such key or it does not expire: then nothing is written.

local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ttl)
