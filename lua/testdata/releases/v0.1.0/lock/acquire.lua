-- Lock: takes a lock, unless somebody holds it. A refused attempt writes nothing, except after the clock was
-- set back: see the block lock_clock.
--
-- KEYS  1 lock     hash: while somebody holds the lock, holder, and ends, the end of its lease in
--                  milliseconds since 1970; fence, the last one given, below 2^53. A lock whose lease is over
--                  is free
--       2 void     string: the tombstone of this call, when it was undone and may still arrive
--       3 present  zset, as lock_wait writes it: nobody overtakes those who wait
-- ARGV  1 lease   milliseconds for which it is held without a renewal
--       2 holder  "call|lease|actor": the name of this call, its lease, and the encoded actor. A resend after
--                 a lost reply has the same, and gets the same fence
--       3 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {reason, fence, wait}
--       reason  ok, busy (somebody holds the lock, or others wait), gone (this call was undone before it
--               arrived)
--       fence   for ok: greater than all before, now in microseconds or one more than the last; else 0
--       wait    for busy: milliseconds until the lease is over, at least 1; else 0

local lock, void, present = KEYS[1], KEYS[2], KEYS[3]
local lease, holder, now = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

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

if held == holder then
  return {'ok', fence, 0} -- the reply to the first sending was lost
elseif redis.call('EXISTS', void) == 1 then
  return {'gone', 0, 0}
elseif held or redis.call('ZCOUNT', present, '(' .. now, now + 3000) > 0 then
  return {'busy', 0, math.max(ends - now, 1)}
end

-- shared lock_take
ends, fence = now + lease, math.max(fence + 1, micro)
redis.call('HSET', lock, 'holder', holder, 'ends', ends, 'fence', fence)
-- end lock_take
-- shared lock_keep
redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease + 86400000))
-- end lock_keep
return {'ok', fence, 0}
