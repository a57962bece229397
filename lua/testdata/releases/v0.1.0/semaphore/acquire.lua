-- Semaphore: takes permits of a pool, unless more than `max` would then be held. A refused attempt writes
-- nothing, except after the clock was set back: see the block semaphore_clock.
--
-- KEYS  1 permits  zset: "cost|holder" for the permits of each holder, by the end of their lease in
--                  milliseconds since 1970; permits whose lease is over are free. And an empty member, whose
--                  score is how many permits all of these are, below zero
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
--       wait    for busy: milliseconds until the leases of enough permits are over, at least 1, or of all, if
--               these have more than a hundred holders; else 0

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
-- shared semaphore_held
local held = 0 - tonumber(redis.call('ZSCORE', permits, '') or 0)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, now)) do
  held = held - string.match(member, '^%d+')
end
-- end semaphore_held

local left = math.max(max - held, 0)
local ends = tonumber(redis.call('ZSCORE', permits, cost .. '|' .. holder) or 0)
if ends > now then
  return {'ok', left, 0} -- the reply to the first sending was lost
elseif redis.call('EXISTS', void) == 1 then
  return {'gone', left, 0}
elseif held + cost > max or redis.call('ZCOUNT', present, '(' .. now, now + 3000) > 0 then
  local lacking = held + cost - max
  local next = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES',
    'LIMIT', 0, math.max(math.min(lacking, 100), 1))
  for i = 1, #next, 2 do
    if i == 1 or lacking > 0 then
      ends, lacking = tonumber(next[i + 1]), lacking - string.match(next[i], '^%d+')
    end
  end
  if lacking > 0 then
    ends = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2] or 0)
  end
  return {'busy', left, math.max(ends - now, 1)}
end

-- shared semaphore_take
redis.call('ZADD', permits, now + lease, cost .. '|' .. holder)
held = held + cost
-- end semaphore_take
-- shared semaphore_store
redis.call('ZREMRANGEBYSCORE', permits, 0, now)
if held > 0 then
  redis.call('ZADD', permits, -held, '')
else
  redis.call('ZREM', permits, '')
end
-- end semaphore_store
-- shared semaphore_keep
redis.call('PEXPIRE', permits, math.max(redis.call('PTTL', permits), lease + 1000))
-- end semaphore_keep
return {'ok', left - cost, 0}
