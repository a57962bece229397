-- Semaphore: takes permits of a pool, unless more than `max` would then be held. A lock is a pool of one
-- permit that has fences. A refused attempt writes nothing, except after the clock was set back: see the
-- block semaphore_clock.
--
-- KEYS  1 permits  zset: the holders of permits, by the end of their lease in milliseconds since 1970;
--                  permits whose lease is over are free. And an empty member, whose score is below zero: how
--                  many permits all of these are; the last fence, if the pool has fences
--       2 void     string: the tombstone of this call, when it was undone and may still arrive
--       3 present  zset, as semaphore_wait writes it: nobody overtakes those who wait
-- ARGV  1 max     permits of the pool
--       2 lease   milliseconds for which they are held without a renewal
--       3 holder  "cost|call|lease|actor": how many permits it takes, the name of this call, its lease, and
--                 the encoded actor. A resend after a lost reply has the same, and takes nothing again
--       4 keep    milliseconds for which the pool keeps the last fence; absent: it has no fences
--       5 now     microseconds since 1970; absent or empty: the server's clock
-- Returns {reason, left, wait, fence}
--       reason  ok, busy (too few permits are free, or others wait), gone (this call was undone before it
--               arrived)
--       left    free permits, after this call
--       wait    for busy: milliseconds until the leases of enough permits are over, at least 1, or of all, if
--               these have more than a hundred holders; else 0
--       fence   for ok, if the pool has fences: now, or one more than the last fence, below 2^53; else absent

local permits, void, present = KEYS[1], KEYS[2], KEYS[3]
local max, lease, holder = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local keep, now = ARGV[4] ~= '' and ARGV[4], tonumber(ARGV[5])

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

local cost, left = tonumber(string.match(holder, '^%d+')), math.max(max - held, 0)
local mine = whose == holder and ends or held > 1 and redis.call('ZSCORE', permits, holder) or 0
if tonumber(mine) > now then -- the reply to the first sending was lost
  return {'ok', left, 0, keep and 0 - redis.call('ZSCORE', permits, '') or nil}
end
local others = redis.call('EXISTS', void, present) > 0
if others and redis.call('EXISTS', void) == 1 then
  return {'gone', left, 0}
elseif held + cost > max or others and redis.call('ZCOUNT', present, '(' .. now, now + 3000) > 0 then
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
  local lacking = held + cost - max
  if lacking > 1 then
    local next = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES',
      'LIMIT', 0, math.min(lacking, 100))
    for i = 1, #next, 2 do
      if lacking > 0 then
        ends, lacking = tonumber(next[i + 1]), lacking - string.match(next[i], '^%d+')
      end
    end
    if lacking > 0 then
      ends = tonumber(redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2])
    end
  end
  return {'busy', left, math.max(ends - now, 1)}
end

local fence = keep and 0 - (redis.call('ZSCORE', permits, '') or 0) or nil
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
return {'ok', left - cost, 0, fence}
