-- Keeps the line while its processes call. Needs line, present and process; left, the waiters of this call
-- that still wait, and rest.

if left == 0 and not rest then
  redis.call('ZREM', present, process)
end
redis.call('PEXPIRE', line, 4000)
redis.call('PEXPIRE', present, 4000)
