-- Semaphore: renews the leases of a process's permits. A lease that is over, or was evicted, is not renewed.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
-- ARGV  1 lease   milliseconds from now on
--       2 now     milliseconds since 1970; absent or empty: the server's clock
--       then holder, cost, ...  of each holder, as they were given to semaphore_acquire
-- Returns the numbers of the holders that have lost their permits, in the order of ARGV, from 1 on.

local permits = KEYS[1]
local lease, now = tonumber(ARGV[1]), tonumber(ARGV[2])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- PEXPIRE goes first: a full Redis accepts it, and then the leases too.
-- shared semaphore_keep
redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
-- end semaphore_keep
-- shared semaphore_clock
local late = redis.call('ZRANGEBYSCORE', permits, '(' .. (now + lease), '+inf', 'WITHSCORES')
for i = 1, #late, 2 do
  local ends = now + string.match(late[i], '^%d+|[^|]+|(%d+)')
  if ends < tonumber(late[i + 1]) then
    redis.call('ZADD', permits, ends, late[i])
  end
end
-- end semaphore_clock

local lost = {}
for i = 3, #ARGV, 2 do
  local member = ARGV[i + 1] .. '|' .. ARGV[i]
  if tonumber(redis.call('ZSCORE', permits, member) or 0) > now then
    redis.call('ZADD', permits, now + lease, member)
  else
    lost[#lost + 1] = (i - 1) / 2
  end
end
return lost
