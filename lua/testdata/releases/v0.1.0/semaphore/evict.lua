-- Semaphore: takes permits away from those who hold them, for an operator. Their next renewal tells them.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
-- ARGV  1 actor    whose permits, encoded; absent: those of all
-- Returns the number of permits taken away, with those whose lease was over.

local permits, actor = KEYS[1], ARGV[1] or ''

local evicted = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, '+inf')) do
  if actor == '' or string.match(member, '([^|]*)$') == actor then
    redis.call('ZREM', permits, member)
    evicted = evicted + string.match(member, '^%d+')
  end
end
local held = 0 - tonumber(redis.call('ZSCORE', permits, '') or 0) - evicted
if held > 0 then
  redis.call('ZADD', permits, -held, '')
else
  redis.call('ZREM', permits, '')
end
return evicted
