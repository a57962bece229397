-- Semaphore: takes permits of a pool, unless more than `max` would then be held. A refused attempt writes
-- nothing, except after the clock was set back: see the block semaphore_clock.
--
-- KEYS  1 permits  zset: "number|holder" for each permit, by the end of its lease in milliseconds since 1970.
--                  A permit whose lease is over is free
--       2 void     string: the tombstone of this call, when it was undone and may still arrive
--       3 present  zset, as semaphore_wait writes it: nobody overtakes those who wait
-- ARGV  1 max     permits of the pool
--       2 cost    permits to take
--       3 lease   milliseconds for which they are held without a renewal
--       4 holder  "call|lease|actor": the name of this call, its lease, and the encoded actor. A resend after
--                 a lost reply has the same, and takes nothing again
--       5 now     milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, left, wait}
--       reason  ok, busy (too few permits are free, or others wait), gone (this call was undone before it
--               arrived)
--       left    free permits, after this call
--       wait    for busy: milliseconds until the leases of enough permits are over, at least 1; else 0

local permits, void, present = KEYS[1], KEYS[2], KEYS[3]
local max, cost, lease, holder = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local now = tonumber(ARGV[5])

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

local held = redis.call('ZCOUNT', permits, '(' .. now, '+inf')
local left = math.max(max - held, 0)
local ends = tonumber(redis.call('ZSCORE', permits, '1|' .. holder) or 0)
if ends > now then
  return {'ok', left, 0} -- the reply to the first sending was lost
elseif redis.call('EXISTS', void) == 1 then
  return {'gone', left, 0}
elseif held + cost > max or redis.call('ZCOUNT', present, '(' .. now, now + 3000) > 0 then
  local enough = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES',
    'LIMIT', math.max(held + cost - max - 1, 0), 1)[2]
  return {'busy', left, math.max((enough or 0) - now, 1)}
end

-- shared semaphore_take
for number = 1, cost do
  redis.call('ZADD', permits, now + lease, number .. '|' .. holder)
end
-- end semaphore_take
redis.call('ZREMRANGEBYSCORE', permits, '-inf', now)
-- shared semaphore_keep
redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
-- end semaphore_keep
return {'ok', left - cost, 0}
