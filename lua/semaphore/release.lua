-- Semaphore: gives back the permits that one call of semaphore_acquire or semaphore_wait took, or keeps it
-- from taking them. Who waits leaves the line.
--
-- KEYS  1 permits  zset, as semaphore_acquire writes it
--       2 void     string, as semaphore_acquire reads it
--       3 line, 4 present  zsets, as semaphore_wait writes them
-- ARGV  1 holder, 2 cost, 3 max  as they were given to semaphore_acquire
--       4 within   milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                  from taking permits; 0: no tombstone
--       5 process  the process that has waited; absent or empty: none
--       6 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {had, first, wait}
--       had      1 when the permits were held until now, else 0
--       first    the process of the first in line for whom permits are free, which has to be told, and makes
--                the call of semaphore_wait; or empty
--       wait     milliseconds until its waiter loses its place, unless it makes this call

local permits, void, line, present = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, cost, within, process = ARGV[1], ARGV[2], ARGV[4], ARGV[5] or ''
local now = tonumber(ARGV[6])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- shared semaphore_held
local held = 0 - tonumber(redis.call('ZSCORE', permits, '') or 0)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, now)) do
  held = held - string.match(member, '^%d+')
end
-- end semaphore_held

-- ZREM goes first: a full Redis accepts it, and then the rest too.
local member = cost .. '|' .. holder
local ends = tonumber(redis.call('ZSCORE', permits, member) or 0)
local had = redis.call('ZREM', permits, member)
if ends > now then
  held = held - cost
end
if had == 1 then
  -- shared semaphore_store
  redis.call('ZREMRANGEBYSCORE', permits, 0, now)
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
  redis.call('ZREM', line, process .. '|' .. cost .. '|' .. ARGV[3] .. '|' .. holder)
end
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
  local cost, most = string.match(head or '', '^[^|]*|(%d+)|(%d+)|')
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
    return {had, fits and whose or '', fits and alive - now or 0}
  end
end
