-- Delay: removes a task that is pending, or one that is dead.
--
-- KEYS  1 head       hash, as delay_schedule writes it
--       2 tasks      hash
--       3 bodies     hash
--       4 due        zset
--       5 running    zset
--       6 done       zset
--       7 dead       zset
--       8 op         string: the answer to this call, for a resend after a lost reply
-- ARGV  1 id         of the task
--       2 state      in which it has to be: p (pending) or x (dead)
--       3 remember   milliseconds for which a resend of this call gets the same reply
--       4 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason}
--       reason     ok, not_found, not_now (the task is in another state)

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local op, id, want, remember = KEYS[8], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = tonumber(ARGV[4])

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
-- shared delay_named
local answered = redis.call('GET', op)
if answered then
  return {answered} -- the reply to the first sending was lost
end
local state, _, try, fence, group, reason = parse(redis.call('HGET', tasks, id))
local over = state == 'd' and done or state == 'x' and dead
if not state or over and tonumber(redis.call('ZSCORE', over, id) or 0) <= now then
  return {'not_found'}
elseif state ~= want and not (state == 's' and want == 'p') then
  return {'not_now'}
end
-- end delay_named

redis.call('ZREM', due, id) -- first: a full Redis accepts it, and then the rest
redis.call('ZREM', dead, id)
store(id, '')
redis.call('HDEL', tasks, id)
redis.call('SET', op, 'ok', 'PX', remember)
local last = now
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
return {'ok'}
