-- Delay: tells of a task. It writes nothing.
--
-- KEYS  1 tasks    hash, as delay_schedule writes it
--       2 bodies   hash
--       3 running  zset
--       4 done     zset
--       5 dead     zset
-- ARGV  1 id       of the task
--       2 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {state, at, try, ends, reason, body}, or {''} for a task that is not known
--       ends     of a running task when its lease ends, of an ended one when it is forgotten; else 0
--       body     the payload, and of a task that is done the result

local tasks, bodies, running, done, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, now = ARGV[1], tonumber(ARGV[2])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local state, at, try, reason = string.match(redis.call('HGET', tasks, id) or '',
  '^(%l) (%d+) (%d+) %d+ %d+ (.*)$')
local ends = 0
if state == 'r' or state == 'a' then
  ends = tonumber(redis.call('ZSCORE', running, id) or 0)
elseif state == 'd' or state == 'x' then
  ends = tonumber(redis.call('ZSCORE', state == 'd' and done or dead, id) or 0)
end
if not state or (state == 'd' or state == 'x') and ends <= now then
  return {''}
end
return {state, tonumber(at), tonumber(try), ends, reason, redis.call('HGET', bodies, id) or ''}
