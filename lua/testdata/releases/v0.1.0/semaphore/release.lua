-- Semaphore: gives back the permits that one call of semaphore_acquire or semaphore_wait took, or keeps it
-- from taking them. Who waits leaves the line.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 void     string, as semaphore_acquire reads it
--       3 line, 4 present  zsets, as semaphore_wait writes them
-- ARGV  1 holder, 2 cost  as they were given to semaphore_acquire
--       3 within   milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                  from taking permits; 0: no tombstone
--       4 process  the process that has waited; absent or empty: none
--       5 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {held, first}
--       held     1 when the permits were held until now, else 0
--       first    the process of the first in line, which has to be told that there may be something for it,
--                and makes the call of semaphore_wait within 300 ms; or empty

local permits, void, line, present = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, cost, within, process = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] or ''
local now = tonumber(ARGV[5])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- ZREM goes first: a full Redis accepts it, and then the tombstone too.
local held = 0
for number = 1, cost do
  held = math.max(held, redis.call('ZREM', permits, number .. '|' .. holder))
end
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
if process ~= '' then
  redis.call('ZREM', line, process .. '|' .. holder)
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
