-- Keeps the line while its processes call. left is how many waiters of this call still wait, but for rest.
-- needs: left, rest, present, process, line

if left == 0 and not rest then
  redis.call('ZREM', present, process)
end
redis.call('PEXPIRE', line, 4000)
redis.call('PEXPIRE', present, 4000)
