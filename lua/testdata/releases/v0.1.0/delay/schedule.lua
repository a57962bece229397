-- Delay: schedules a task, once per ID. A task that is known already is not changed, and nothing is written.
--
-- KEYS  1 head     hash: until, when all keys of the slot expire; fence, the last that was given; bytes, how
--                  many all bodies have
--       2 tasks    hash: ID -> "state at try fence group reason". The state is p (pending), r (running), d
--                  (done), x (dead), s (pending, and suspect: its lease was over, and its process may have
--                  died of it) or a (a suspect that runs, apart from tasks that are none); at is when the
--                  task is due, try counts its tries, fence is that of the last claim, 0 where a lease was
--                  over, group how many suspects run together: of a running one how many do, of a pending
--                  one how many may, 0 before that is known; reason the last failure's
--       3 bodies   hash: ID -> the payload, and once it is done the result
--       4 due      zset: the IDs of pending tasks, by when they are due; of suspects, by that and 10^13
--       5 running  zset: the IDs of running tasks, by the end of their lease
--       6 done     zset: the IDs of tasks that are done, by when they are forgotten
--       7 dead     zset: the IDs of dead tasks, by when they are forgotten
--       8 op       string: notes that this call has scheduled the task, for a resend after a lost reply, also
--                  where others have cancelled the task meanwhile
-- ARGV  1 id       of the task, encoded
--       2 at       when it is due, milliseconds since 1970; 0 and any time in the past: at once
--       3 payload
--       4 keep     milliseconds for which an ended task is remembered at most
--       5 most     bytes that the slot may have then; 0: any number. Each task counts its body and 300, and
--                  one that has not ended what its result may have
--       6 result   bytes that a result may have
--       7 remember  milliseconds for which a resend of this call gets the same reply
--       8 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns 1: this call scheduled the task; 0: the ID was known; -1: the slot would have more bytes than most

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local op, id, at, payload, keep = KEYS[8], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local most, result, remember, now = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])

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

if redis.call('EXISTS', op) == 1 then
  return 1 -- the reply to the first sending was lost
end
local state = parse(redis.call('HGET', tasks, id))
local over = state == 'd' and done or state == 'x' and dead
if state and not (over and tonumber(redis.call('ZSCORE', over, id) or 0) <= now) then
  return 0
end
if most > 0 then
  local all, ended = redis.call('HLEN', tasks) + 1, redis.call('ZCOUNT', done, '-inf', '+inf')
  local bytes = math.max(tonumber(redis.call('HGET', head, 'bytes') or 0), 0) + #payload
  if bytes + 300 * all + result * (all - ended) > most then
    return -1
  end
end

if at <= 0 then
  at = now
end
write(id, 'p', at, 0, 0, 0, '')
store(id, payload)
redis.call('ZADD', due, at, id)
redis.call('SET', op, '1', 'PX', remember)
if over then
  redis.call('ZREM', done, id)
  redis.call('ZREM', dead, id)
end
most = 2 -- more than one comes, so they never pile up
-- shared delay_forget
local forgotten = 0
for _, ended in ipairs({done, dead}) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ended, '-inf', now, 'LIMIT', 0, most)) do
    redis.call('ZREM', ended, id)
    redis.call('HDEL', tasks, id)
    store(id, '')
    forgotten = forgotten + 1
  end
end
-- end delay_forget
local last = math.max(at, now + keep)
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
