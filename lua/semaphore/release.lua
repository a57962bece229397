-- Semaphore: gives back the permits that one call of semaphore_acquire or semaphore_wait took, or keeps it
-- from taking them. Who waits leaves the line.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 void     string, as semaphore_acquire reads it
--       3 line, 4 present  zsets, as semaphore_wait writes them
-- ARGV  1 holder, 2 max  as they were given to semaphore_acquire
--       3 within   milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                  from taking permits; 0: no tombstone
--       4 process  the process that has waited; absent: none
--       5 keep     as for semaphore_acquire
--       6 now      microseconds since 1970; absent or empty: the server's clock
-- Returns {first, wait}
--       first    the process of the first in line for whom permits are free, which has to be told, and makes
--                the call of semaphore_wait; or empty
--       wait     milliseconds until its waiter loses its place, unless it makes this call

local permits, void, line, present = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, max, within, process = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local keep, now = ARGV[5] ~= '' and ARGV[5], tonumber(ARGV[6])

-- ZREM goes first: a full Redis accepts it, and then the rest too.
if redis.call('ZREM', permits, holder) == 1 and not keep then
  local held = 0 - (redis.call('ZSCORE', permits, '') or 0) - string.match(holder, '^%d+')
  -- shared semaphore_store
  if held > 0 then
    redis.call('ZADD', permits, -held, '')
  else
    redis.call('ZREM', permits, '')
  end
  -- end semaphore_store
end
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
if process ~= '' then
  redis.call('ZREM', line, process .. '|' .. max .. '|' .. holder)
end
if redis.call('EXISTS', line) == 0 then
  return {'', 0}
end

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
now = math.floor(now / 1000)
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
local skip, again = 0, true
while again do
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
  -- shared line_ask
  local told = fits and whose ~= process and alive > now + 300
  if told then
    alive = now + (place > 0 and 25 or 300)
    redis.call('ZADD', present, alive, whose)
  end
  -- end line_ask
  skip, again = skip + 1, passed
  if not passed then
    return {fits and whose or '', fits and alive - now or 0}
  end
end
