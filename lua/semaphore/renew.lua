-- Semaphore: renews the leases of a process's permits. A lease that is over, or was evicted, is not renewed.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
-- ARGV  1 lease   milliseconds from now on
--       2 keep    as for semaphore_acquire
--       3 now     microseconds since 1970; absent or empty: the server's clock
--       then holder, ...  as they were given to semaphore_acquire
-- Returns the numbers of the holders that have lost their permits, in the order of ARGV, from 1 on.

local permits = KEYS[1]
local lease, keep, now = tonumber(ARGV[1]), ARGV[2] ~= '' and ARGV[2], tonumber(ARGV[3])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
now = math.floor(now / 1000)
-- PEXPIRE goes first: a full Redis accepts it, and then the leases too.
-- shared semaphore_keep
redis.call('PEXPIRE', permits, keep or '3601000')
-- end semaphore_keep

local lost = {}
for i = 4, #ARGV do
  if tonumber(redis.call('ZSCORE', permits, ARGV[i]) or 0) > now then
    redis.call('ZADD', permits, now + lease, ARGV[i])
  else
    lost[#lost + 1] = i - 3
  end
end
return lost
