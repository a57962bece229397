-- Delay: ends a running task that is done. Its payload goes; its ID and its result are kept for a time.
--
-- KEYS  1 head     hash, as delay_schedule writes it
--       2 tasks    hash
--       3 bodies   hash
--       4 due      zset
--       5 running  zset
--       6 done     zset
--       7 dead     zset
-- ARGV  1 id       of the task
--       2 fence    of its claim
--       3 result   to keep; empty: none
--       4 keep     milliseconds for which an ended task is remembered
--       5 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns 1: this call ended it; 0: it was ended under this fence before; -1: it does not run under it

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local id, fence, result, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = tonumber(ARGV[5])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- shared delay_record
local function parse(record)
  local state, at, try, fence, group, reason =
    string.match(record or '', '^(%l) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return state, tonumber(at), tonumber(try), fence, tonumber(group), reason
end
local function write(id, state, at, try, fence, group, reason)
  redis.call('HSET', tasks, id, table.concat({state, at, try, fence, group, reason}, ' '))
end
-- end delay_record
-- shared delay_body
local function store(id, body)
  redis.call('HINCRBY', head, 'bytes', #body - redis.call('HSTRLEN', bodies, id))
  if body == '' then
    redis.call('HDEL', bodies, id)
  else
    redis.call('HSET', bodies, id, body)
  end
end
-- end delay_body

local state, at, try, holds, group = parse(redis.call('HGET', tasks, id))
if holds ~= fence or state ~= 'r' and state ~= 'a' and state ~= 'd' then
  return -1
elseif state == 'd' then
  return 0
end

redis.call('ZREM', running, id) -- first: a full Redis accepts it, and then the rest
write(id, 'd', at, try, fence, group, '')
redis.call('ZADD', done, now + keep, id)
store(id, result)
local last = now + keep
-- shared delay_keep
local ends = tonumber(redis.call('HGET', head, 'until') or 0)
local longer = ends < last + 2592000000
if longer then
  ends = last + 2592000000 + 86400000 -- a day more, so that this happens once per day
end
for i = 1, 7 do
  redis.call('PEXPIREAT', KEYS[i], ends)
end
if longer then
  redis.call('HSET', head, 'until', ends)
  redis.call('PEXPIREAT', head, ends)
end
-- end delay_keep
return 1
