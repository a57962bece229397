-- Semaphore: tells who holds permits of a pool. It only reads.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 line     zset, as semaphore_wait writes it
-- ARGV  1 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {now, waiting, permits}
--       now      milliseconds since 1970
--       waiting  how many wait, with those of processes that have died a moment ago
--       permits  those of each holder and the end of their lease, as they are in the zset, first to end first

local permits, line, now = KEYS[1], KEYS[2], tonumber(ARGV[1])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
local held = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES')
return {now, redis.call('ZCOUNT', line, '-inf', '+inf'), held}
