-- Lock: renews the lease of a lock. A lease that is over, or was broken, is not renewed.
--
-- KEYS  1 lock    hash, as lock_acquire writes it
-- ARGV  1 lease   milliseconds from now on
--       2 now     microseconds since 1970; absent or empty: the server's clock
--       then holder, ...  that have held it, as they were given to lock_acquire
-- Returns the numbers of those that have lost it, in the order of ARGV, from 1 on.

local lock = KEYS[1]
local lease, now = tonumber(ARGV[1]), tonumber(ARGV[2])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
-- PEXPIRE goes first: a full Redis accepts it, and then the lease too.
-- shared lock_keep
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease + 86400000))
-- end lock_keep
-- shared lock_read
local micro = now
now = math.floor(micro / 1000)
local record = redis.call('HMGET', lock, 'holder', 'ends', 'fence')
local ends, fence = tonumber(record[2] or 0), tonumber(record[3] or 0)
local held = ends > now and record[1]
-- end lock_read

local lost = {}
for i = 3, #ARGV do
  if ARGV[i] == held then
    redis.call('HSET', lock, 'ends', now + lease)
  else
    lost[#lost + 1] = i - 2
  end
end
return lost
