-- Semaphore: lets waiters of one process stand in line for permits, and gives permits to those at its head.
-- Whoever waits is served in the order of arrival, whatever the process. One for whom too few permits are
-- free is passed after a while: see the block semaphore_fits.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 line     zset: "process|max|holder" for each waiter, by its place
--       3 present  zset: the processes that have waiters, by the moment in milliseconds since 1970 until
--                  which they are taken to be alive: three seconds after their last call; less after the
--                  moment when there may be something for their first waiter, see the block line_ask. And an
--                  empty member, by the moment since when the first in line waits beside free permits
--       4 void     string of the first waiter, as semaphore_acquire reads it; further waiters have theirs in
--                  5, 6 and so on
-- ARGV  1 process  one word that names the process
--       2 lease    milliseconds, as for semaphore_acquire
--       3 rest     boolean: the process has more waiters than these, which come after them
--       4 placed   how many of these, the first, had places by an earlier call
--       5 keep     as for semaphore_acquire
--       6 now      microseconds since 1970; absent or empty: the server's clock
--                  then holder, max, ...  of each waiter, as for semaphore_acquire, the first first.
--                  Without any, the process only looks who is next
-- Returns {first, wait, granted, fence}
--       first    this process, if it is that of the first in line; another one that has to be told that there
--                may be permits for its first waiter, and makes this call; or empty
--       wait     milliseconds until the next lease is over, or the other process that is first is taken to be
--                dead; only the latter, if this process has no waiters and has to look again; 0: neither
--       granted  the numbers of the waiters that have permits, in the order of ARGV, from 1 on
--       fence    if the pool has fences: the last one, which is that of the waiter of a lock; else absent

local permits, line, present = KEYS[1], KEYS[2], KEYS[3]
local process, lease, rest = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local placed, keep, now = tonumber(ARGV[4]), ARGV[5] ~= '' and ARGV[5], tonumber(ARGV[6])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local micro = now
now = math.floor(micro / 1000)
-- shared semaphore_read
local read = redis.call('ZRANGE', permits, keep and '1' or '0', '1', 'WITHSCORES')
local whose, ends = read[#read - 1], tonumber(read[#read] or 0)
local held = keep and #read / 2 or 0 - (read[2] or 0)
local over = whose and ends <= now
if over then
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, now)) do
    held = held - string.match(holder, '^%d+')
  end
  read = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  whose, ends = read[1], tonumber(read[2] or 0)
end
-- end semaphore_read
-- shared semaphore_clock
if held > 1 or whose and ends > now + string.match(whose, '^%d+|[^|]+|(%d+)') then
  local from = held > 1 and now + lease or now
  local late = redis.call('ZRANGEBYSCORE', permits, '(' .. from, '+inf', 'WITHSCORES')
  for i = 1, #late, 2 do
    local latest = now + string.match(late[i], '^%d+|[^|]+|(%d+)')
    if latest < tonumber(late[i + 1]) then
      redis.call('ZADD', permits, latest, late[i])
      ends = math.min(ends, latest)
    end
  end
end
-- end semaphore_clock

local last = math.max(tonumber(redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0), 0)
local granted, waiting, left, front = {}, {}, 0, nil
for i = 7, #ARGV, 2 do
  local number, member = (i - 5) / 2, process .. '|' .. ARGV[i + 1] .. '|' .. ARGV[i]
  if tonumber(redis.call('ZSCORE', permits, ARGV[i]) or 0) > now then
    granted[#granted + 1] = number -- the reply to the first sending was lost
  elseif redis.call('EXISTS', KEYS[3 + number]) == 0 then
    waiting[member], left = i, left + 1
    -- At the front, up to 0, if it had a place before, since places are lost near the head only.
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
  end
end
redis.call('ZADD', present, now + 3000, process)

local fence = keep and 0 - (redis.call('ZSCORE', permits, '') or 0) or nil
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
  -- shared semaphore_fits
  local most, cost = string.match(head or '', '^[^|]*|(%d+)|(%d+)|')
  local fits, passed = head and held + cost <= tonumber(most), false
  if fits and skip == 0 then
    redis.call('ZREM', present, '')
  elseif head and not fits and held < tonumber(most) then
    local since = tonumber(redis.call('ZSCORE', present, '') or now + 1)
    if since > now then -- it begins; or the clock was set back
      since = now
      redis.call('ZADD', present, since, '')
    end
    passed = now - since >= 300 and skip < 100
  end
  -- end semaphore_fits
  local i = waiting[head]
  local mine = head and whose == process
  if mine and not i and skip == 0 then
    redis.call('ZREM', line, head) -- it has given up
  elseif passed or mine and not i and fits then
    skip = skip + 1
  elseif i and fits then
    local holder = ARGV[i]
    -- shared semaphore_take
    fence = keep and math.max(fence + 1, micro) or nil
    redis.call('ZADD', permits, now + lease, holder, -(fence or held + cost), '')
    if over then
      redis.call('ZREMRANGEBYSCORE', permits, 0, now)
    end
    -- end semaphore_take
    -- shared semaphore_keep
    redis.call('PEXPIRE', permits, keep or '3601000')
    -- end semaphore_keep
    redis.call('ZREM', line, head)
    granted[#granted + 1] = (i - 5) / 2
    held, left = held + cost, left - 1
  else
    -- shared line_ask
    local told = fits and whose ~= process and alive > now + 300
    if told then
      alive = now + (place > 0 and 25 or 300)
      redis.call('ZADD', present, alive, whose)
    end
    -- end line_ask
    first = (told or mine) and whose or ''
    silent = head and not mine and alive - now
    if left == 0 and not rest and not fits then
      silent = nil
    end
  end
end

if left == 0 and not rest then
  redis.call('ZREM', present, process)
end
redis.call('PEXPIRE', line, 4000)
redis.call('PEXPIRE', present, 4000)
if left == 0 and not rest then
  return {first, silent or 0, granted, fence}
end
ends = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local wait = (ends or now) - now
if silent and (silent < wait or wait == 0) then
  wait = silent
end
return {first, wait, granted, fence}
