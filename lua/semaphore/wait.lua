-- Semaphore: lets waiters of one process stand in line for permits, and gives permits to those at its head.
-- Whoever waits is served in the order of arrival, whatever the process and the cost.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 line     zset: "process|holder" for each waiter, by its place
--       3 present  zset: the processes that have waiters, by the moment in milliseconds since 1970 until
--                  which they are taken to be alive: three seconds after their last call;
--                  300 ms after the moment when there may be something for their first waiter
--       4 void     string of the first waiter, as semaphore_acquire reads it; further waiters have theirs in
--                  5, 6 and so on
-- ARGV  1 process  one word that names the process
--       2 lease    milliseconds, as for semaphore_acquire
--       3 rest     boolean: the process has more waiters than these, which come after them
--       4 placed   how many of these, the first, had places by an earlier call
--       5 now      milliseconds since 1970; absent or empty: the server's clock
--                  then holder, cost, max, ...  of each waiter, as for semaphore_acquire, the first first
-- Returns {first, wait, granted}
--       first    this process, if it is that of the first in line; another one that has to be told that there
--                may be permits for its first waiter, and makes this call within 300 ms; or empty
--       wait     milliseconds until the next lease is over, or the other process that is first is taken to be
--                dead; 0: neither
--       granted  the numbers of the waiters that have permits, in the order of ARGV, from 1 on

local permits, line, present = KEYS[1], KEYS[2], KEYS[3]
local process, lease, rest = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local placed, now = tonumber(ARGV[4]), tonumber(ARGV[5])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- shared semaphore_clock
local late = redis.call('ZRANGEBYSCORE', permits, '(' .. (now + lease), '+inf', 'WITHSCORES')
for i = 1, #late, 2 do
  local ends = now + string.match(late[i], '^%d+|[^|]+|(%d+)')
  if ends < tonumber(late[i + 1]) then
    redis.call('ZADD', permits, ends, late[i])
  end
end
-- end semaphore_clock

local last, front = tonumber(redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0), nil
local granted, waiting, left = {}, {}, 0
for i = 6, #ARGV, 3 do
  local number, member = i / 3 - 1, process .. '|' .. ARGV[i]
  if tonumber(redis.call('ZSCORE', permits, '1|' .. ARGV[i]) or 0) > now then
    granted[#granted + 1] = number -- the reply to the first sending was lost
  elseif redis.call('EXISTS', KEYS[3 + number]) == 0 then
    waiting[member], left = i, left + 1
    -- shared line_join
    if not redis.call('ZSCORE', line, member) then
      if number <= placed then
        front = front or tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2] or 0) - placed - 1
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

local held = redis.call('ZCOUNT', permits, '(' .. now, '+inf')
local first, silent
while not first do
  local free = held < tonumber(ARGV[8] or 0)
  -- shared line_head
  local head, whose, alive, told
  repeat
    head = redis.call('ZRANGEBYSCORE', line, '-inf', '+inf', 'LIMIT', 0, 1)[1]
    whose = string.match(head or '', '^[^|]*')
    alive = tonumber(redis.call('ZSCORE', present, whose) or 0)
    local gone = head and (alive <= now or alive > now + 3000) -- later: the clock was set back
    if gone then
      redis.call('ZREM', line, head)
    elseif head and free and whose ~= process and alive > now + 300 then
      alive, told = now + 300, true
      redis.call('ZADD', present, alive, whose)
    end
  until not gone
  -- end line_head
  local i = waiting[head]
  if not i and whose == process and head then
    redis.call('ZREM', line, head) -- it has given up
  elseif i and held + ARGV[i + 1] <= tonumber(ARGV[i + 2]) then
    local holder, cost = ARGV[i], tonumber(ARGV[i + 1])
    -- shared semaphore_take
    for number = 1, cost do
      redis.call('ZADD', permits, now + lease, number .. '|' .. holder)
    end
    -- end semaphore_take
    held = held + cost
    redis.call('ZREM', line, head)
    granted[#granted + 1] = i / 3 - 1
    left = left - 1
  else
    first = (told or whose == process) and whose or ''
    silent = head and whose ~= process and alive - now
  end
end

-- shared line_keep
if left == 0 and not rest then
  redis.call('ZREM', present, process)
end
redis.call('PEXPIRE', line, 4000)
redis.call('PEXPIRE', present, 4000)
-- end line_keep
redis.call('ZREMRANGEBYSCORE', permits, '-inf', now)
-- shared semaphore_keep
redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
-- end semaphore_keep
local ends = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local wait = (ends or now) - now
if silent and (silent < wait or wait == 0) then
  wait = silent
end
return {first, wait, granted}
