-- Semaphore: takes permits away from those who hold them, for an operator. Their next renewal tells them.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
-- ARGV  1 keep     as for semaphore_acquire
--       2 actor    whose permits, encoded; absent or empty: those of all
-- Returns the number of permits taken away, with those whose lease was over.

local permits, keep, actor = KEYS[1], ARGV[1] ~= '', ARGV[2] or ''

local evicted = 0
for _, holder in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, '+inf')) do
  if actor == '' or string.match(holder, '([^|]*)$') == actor then
    redis.call('ZREM', permits, holder)
    evicted = evicted + string.match(holder, '^%d+')
  end
end
if not keep then
  local held = 0 - (redis.call('ZSCORE', permits, '') or 0) - evicted
  -- shared semaphore_store
  if held > 0 then
    redis.call('ZADD', permits, -held, '')
  else
    redis.call('ZREM', permits, '')
  end
  -- end semaphore_store
end
return evicted
