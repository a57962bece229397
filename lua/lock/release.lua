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
-- Returns {held, first}
--       held     1 when the lock was held until now, else 0
--       first    the process of the first in line, which has to be told that there may be something for it,
--                and makes the call of lock_wait within 300 ms; or empty

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
local held = 0
if redis.call('HGET', lock, 'holder') == holder then
  held = 1
  redis.call('HDEL', lock, 'holder', 'ends')
end
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
local free = true -- as far as this call knows
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
return {held, whose}
