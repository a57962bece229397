-- All guards: performs a write that changes nothing: the key still expires at the same millisecond. WAIT on
-- the same connection then waits for everything written before, by any client. On a connection that has only
-- read, such as one that received a stored answer, WAIT would wait for nothing.
--
-- KEYS  1 key  that exists and expires
-- ARGV  none
-- Returns 1, or 0 when the key does not exist or does not expire: then nothing is written.

local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ttl)
