-- Semaphore: tells who holds permits of a pool. It only reads.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 line     zset, as semaphore_wait writes it
-- ARGV  1 now      microseconds since 1970; absent or empty: the server's clock
-- Returns {now, waiting, number, permits}
--       now      milliseconds since 1970
--       waiting  how many wait, with those of processes that have died a moment ago
--       number   the last fence, or 0; without fences, how many permits the members of the zset are
--       permits  each holder and the end of its lease, as they are in the zset, first to end first

local permits, line, now = KEYS[1], KEYS[2], tonumber(ARGV[1])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
now = math.floor(now / 1000)
local held = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES')
local number = 0 - (redis.call('ZSCORE', permits, '') or 0)
return {now, redis.call('ZCOUNT', line, '-inf', '+inf'), number, held}
