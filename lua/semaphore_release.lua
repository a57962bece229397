-- Semaphore: gives back the permits that one call of semaphore_acquire took, or keeps it from taking them.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 void     string, as semaphore_acquire reads it
-- ARGV  1 holder, 2 cost  as they were given to semaphore_acquire
--       3 within   milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                  from taking permits; 0: no tombstone
-- Returns 1 when the permits were held until now, else 0.

local permits, void = KEYS[1], KEYS[2]
local holder, cost, within = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- ZREM goes first: a full Redis accepts it, and then the tombstone too.
local held = 0
for number = 1, cost do
  held = math.max(held, redis.call('ZREM', permits, number .. '|' .. holder))
end
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
return held
