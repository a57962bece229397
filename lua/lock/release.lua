-- Lock: gives back the lock that one call of lock_acquire or lock_wait took, or keeps it from taking it. Who
-- waits leaves the line. The last fence stays.
--
-- KEYS  1 lock     hash, as lock_acquire writes it
--       2 void     string, as lock_acquire reads it
--       3 line, 4 present  zsets, as lock_wait writes them
-- ARGV  1 holder   as it was given to lock_acquire
--       2 within   milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                  from taking the lock; 0: no tombstone
--       3 process  the process that has waited; absent or empty: none
--       4 now      microseconds since 1970; absent or empty: the server's clock
-- Returns {had, first, wait}
--       had      1 when the lock was held until now, else 0
--       first    the process of the first in line, if the lock is free: it has to be told, and makes the call
--                of lock_wait; or empty
--       wait     milliseconds until its waiter loses its place, unless it makes this call

local lock, void, line, present = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, within, process, now = ARGV[1], ARGV[2], ARGV[3] or '', tonumber(ARGV[4])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
now = math.floor(now / 1000)

-- ZREM goes first: a full Redis accepts it, and then the tombstone too.
redis.call('ZREM', line, process .. '|' .. holder)
local record = redis.call('HMGET', lock, 'holder', 'ends')
local had, taken = 0, tonumber(record[2] or 0) > now
if record[1] == holder then
  had, taken = 1, false
  redis.call('HDEL', lock, 'holder', 'ends')
end
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
local skip = 0
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
local fits = head and not taken
-- shared line_ask
local told = fits and whose ~= process and alive > now + 300
if told then
  alive = now + (place > 0 and 25 or 300)
  redis.call('ZADD', present, alive, whose)
end
-- end line_ask
return {had, fits and whose or '', fits and alive - now or 0}
