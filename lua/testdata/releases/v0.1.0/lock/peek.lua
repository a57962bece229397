-- Lock: tells who holds a lock. It only reads.
--
-- KEYS  1 lock  hash, as lock_acquire writes it
--       2 line  zset, as lock_wait writes it
-- ARGV  1 now   microseconds since 1970; absent or empty: the server's clock
-- Returns {holder, left, fence, waiting}
--       holder   as it was given to lock_acquire; empty: nobody holds the lock
--       left     milliseconds until the lease is over; 0: nobody holds the lock
--       fence    the last one given; 0: none is known
--       waiting  how many wait, with those of processes that have died a moment ago

local lock, line, now = KEYS[1], KEYS[2], tonumber(ARGV[1])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
-- shared lock_read
local micro = now
now = math.floor(micro / 1000)
local record = redis.call('HMGET', lock, 'holder', 'ends', 'fence')
local ends, fence = tonumber(record[2] or 0), tonumber(record[3] or 0)
local held = ends > now and record[1]
-- end lock_read
return {held or '', held and ends - now or 0, fence, redis.call('ZCOUNT', line, '-inf', '+inf')}
