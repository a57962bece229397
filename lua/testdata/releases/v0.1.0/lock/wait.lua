-- Lock: lets waiters of one process stand in line for a lock, and gives it to the one at the head. Whoever
-- waits is served in the order of arrival, whatever the process.
--
-- KEYS  1 lock     hash, as lock_acquire writes it
--       2 line     zset: "process|holder" for each waiter, by its place
--       3 present  zset: the processes that have waiters, by the moment in milliseconds since 1970 until
--                  which they are taken to be alive: three seconds after their last call; less after the
--                  moment when there may be something for their first waiter, see the block line_ask
--       4 void     string of the first waiter, as lock_acquire reads it; further waiters have theirs in 5, 6
--                  and so on
-- ARGV  1 process  one word that names the process
--       2 lease    milliseconds, as for lock_acquire
--       3 rest     boolean: the process has more waiters than these, which come after them
--       4 placed   how many of these, the first, had places by an earlier call
--       5 now      microseconds since 1970; absent or empty: the server's clock
--                  then holder, ...  of each waiter, as for lock_acquire, the first first. Without any, the
--                  process only looks who is next
-- Returns {first, wait, granted, fence}
--       first    this process, if it is that of the first in line; another one that has to be told that the
--                lock may be free for its first waiter, and makes this call; or empty
--       wait     milliseconds until the lease is over, or the other process that is first is taken to be
--                dead; only the latter, if this process has no waiters and has to look again; 0: neither
--       granted  the number of the waiter that has the lock, in the order of ARGV, from 1 on; or nothing
--       fence    the last one, which is that of this waiter

local lock, line, present = KEYS[1], KEYS[2], KEYS[3]
local process, lease, rest = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local placed, now = tonumber(ARGV[4]), tonumber(ARGV[5])

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
-- shared lock_clock
local latest = held and now + string.match(held, '^[^|]+|(%d+)')
if held and latest < ends then
  ends = latest
  redis.call('HSET', lock, 'ends', ends)
end
-- end lock_clock

local last = math.max(tonumber(redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0), 0)
local granted, waiting, left, front = {}, {}, 0, nil
for i = 6, #ARGV do
  local number, member = i - 5, process .. '|' .. ARGV[i]
  if ARGV[i] == held then
    granted[1] = number -- the reply to the first sending was lost
  elseif redis.call('EXISTS', KEYS[3 + number]) == 0 then
    waiting[member], left = i, left + 1
    -- shared line_join
    if not redis.call('ZSCORE', line, member) then
      if number <= placed then
        local least = tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2] or 1)
        front = front or math.min(least, 1) - placed - 1
        redis.call('ZADD', line, front + number, member)
      else
        last = last + 1
        redis.call('ZADD', line, last, member)
      end
    end
    -- end line_join
  end
end
redis.call('ZADD', present, now + 3000, process)

local skip, first, silent = 0, nil, nil
while not first do
  -- shared line_first
  local head, place, whose, alive
  repeat
    local found = redis.call('ZRANGE', line, skip, skip, 'WITHSCORES')
    head, place = found[1], tonumber(found[2])
    whose = string.match(head or '', '^[^|]*')
    alive = tonumber(redis.call('ZSCORE', present, whose) or 0)
    local silent = head and (alive <= now or alive > now + 3000) -- later: the clock was set back
    if silent then
      redis.call('ZREM', line, head)
      redis.call('ZREM', present, whose)
    end
  until not silent
  -- end line_first
  local fits = head and not held
  local i = waiting[head]
  if not i and whose == process and head then
    redis.call('ZREM', line, head) -- it has given up
  elseif i and not held then
    local holder = ARGV[i]
    -- shared lock_take
    ends, fence = now + lease, math.max(fence + 1, micro)
    redis.call('HSET', lock, 'holder', holder, 'ends', ends, 'fence', fence)
    -- end lock_take
    -- shared lock_keep
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease + 86400000))
    -- end lock_keep
    redis.call('ZREM', line, head)
    held, granted[1], left = holder, i - 5, left - 1
  else
    -- shared line_ask
    local told = fits and whose ~= process and alive > now + 300
    if told then
      alive = now + (place > 0 and 25 or 300)
      redis.call('ZADD', present, alive, whose)
    end
    -- end line_ask
    first = (told or whose == process) and whose or ''
    silent = head and whose ~= process and alive - now
    if left == 0 and not rest and not fits then
      silent = nil
    end
  end
end

-- shared line_keep
if left == 0 and not rest then
  redis.call('ZREM', present, process)
end
redis.call('PEXPIRE', line, 4000)
redis.call('PEXPIRE', present, 4000)
-- end line_keep
local wait = held and (left > 0 or rest) and ends - now or 0
if silent and (silent < wait or wait == 0) then
  wait = silent
end
return {first, wait, granted, fence}
