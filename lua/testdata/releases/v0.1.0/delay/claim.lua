-- Delay: claims due tasks under a lease, the first due first, and takes back tasks whose lease is over.
-- These are suspects: their process may have died of them, or of another task that it ran. Suspects are
-- claimed without other tasks, to run apart from these: half of those that are due, and then the others.
-- Where such a group dies, half of it may run together the next time. A lease that is over counts as a try
-- where the suspect ran alone. One that has ended, well or not, is none any more. Without any of these tasks
-- the script writes nothing.
--
-- KEYS  1 head     hash, as delay_schedule writes it
--       2 tasks    hash
--       3 bodies   hash
--       4 due      zset
--       5 running  zset
--       6 done     zset
--       7 dead     zset
--       8 claim    list: the fence of this claim and the IDs that it took, for a resend after a lost reply;
--                  or void, where it was given back and may still arrive
-- ARGV  1 count    tasks to claim, at most. Up to 500 are taken back
--       2 lease    milliseconds
--       3 tries    how often a task is tried; whose lease is over after that is dead
--       4 bytes    of payloads in the reply; a first task may have more
--       5 buried   milliseconds for which a dead task is remembered
--       6 answer   milliseconds for which a resend gets the same reply
--       7 alone    1: the caller runs nothing else, so suspects that are due are claimed, and only these
--       8 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {next, recovered, died, suspect, fence, id, at, try, payload, ...}
--       next       milliseconds until there is something to claim, 0: there is; -1: nothing is scheduled.
--                  Suspects that are due do not count
--       recovered  tasks that were taken back; those of them that became due again
--       died       tasks that were taken back for the last time
--       suspect    2: the tasks of the reply are; 1: one is due, for a caller that runs nothing; else 0
--       fence      of the tasks, as text; 0: there are none

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local claim = KEYS[8]
local count, lease, tries = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bytes, buried, answer = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local alone, now = ARGV[7] == '1', tonumber(ARGV[8])

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
-- shared delay_suspects
local suspects = 10000000000000
-- end delay_suspects

local function next_moment(later)
  local first = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or suspects)
  local ends = tonumber(redis.call('ZRANGE', running, 0, 0, 'WITHSCORES')[2] or suspects)
  local next = math.min(first, ends, later)
  return next < suspects and math.max(next - now, 0) or -1
end

local told = redis.call('LRANGE', claim, 0, -1)
if told[1] then -- the reply to the first sending was lost, or the claim was given back
  local reply = {next_moment(suspects), 0, 0, 0, told[1]}
  for i = 2, #told do
    local state, at, try, fence = parse(redis.call('HGET', tasks, told[i]))
    if (state == 'r' or state == 'a') and fence == told[1] then
      reply[4] = state == 'a' and 2 or 0
      for _, value in ipairs({told[i], at, try, redis.call('HGET', bodies, told[i]) or ''}) do
        reply[#reply + 1] = value
      end
    end
  end
  if told[1] == 'void' then
    reply[5] = '0'
  end
  return reply
end

-- ZREM goes first, since a full Redis accepts it, and then all the rest.
local recovered, died = 0, 0
local over = redis.call('ZRANGEBYSCORE', running, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 500)
for i = 1, #over, 2 do
  local id, ended = over[i], tonumber(over[i + 1])
  redis.call('ZREM', running, id)
  local state, at, try, _, group = parse(redis.call('HGET', tasks, id))
  local lone = state == 'a' and group == 1
  if lone and try >= tries then
    write(id, 'x', at, try, 0, group, 'the lease was over')
    redis.call('ZADD', dead, now + buried, id)
    died = died + 1
  elseif state then
    if lone then -- a second, and twice as long each time, up to an hour
      ended = ended + math.min(1000 * 2 ^ math.min(try - 1, 12), 3600000)
    else -- it ran beside others
      try, group = try - 1, state == 'a' and math.ceil(math.min(group, #over / 2) / 2) or 0
    end
    write(id, 's', ended, try, 0, group, 'the lease was over')
    redis.call('ZADD', due, suspects + ended, id)
    recovered = recovered + 1
  end
end

local reply = {0, recovered, died, 0, '0'}
local first = redis.call('ZRANGEBYSCORE', due, suspects, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local later, apart = tonumber(first[2] or 2 * suspects) - suspects, false
if later <= now then
  later, apart = suspects, alone
  reply[4] = 1
end
local ids, fresh, half = {}, {}, 0
if apart then
  local most = count
  half = math.ceil(redis.call('ZCOUNT', due, suspects, suspects + now) / 2)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, suspects, suspects + now, 'LIMIT', 0, 2 * count)) do
    local _, _, _, _, group = parse(redis.call('HGET', tasks, id))
    if group == 0 then
      fresh[#fresh + 1], group = id, half
    end
    most = math.min(most, group or most)
    if #ids < most then
      ids[#ids + 1] = id
    end
  end
else
  ids = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, count)
end
local taken, size, fence = {}, 0, nil
for _, id in ipairs(ids) do
  local body = redis.call('HGET', bodies, id) or ''
  size = size + #body
  if size > bytes and #taken > 0 then
    break
  end
  taken[#taken + 1] = {id, body}
end
for _, task in ipairs(taken) do
  local id = task[1]
  redis.call('ZREM', due, id)
  local state, at, try, _, _, reason = parse(redis.call('HGET', tasks, id))
  if state then
    if not fence then
      local given = tonumber(redis.call('HGET', head, 'fence') or 0)
      fence = string.format('%.0f', math.max(given + 1, now * 1000)) -- grows also where head was lost
      reply[4], reply[5] = apart and 2 or reply[4], fence
      redis.call('RPUSH', claim, fence)
    end
    write(id, apart and 'a' or 'r', at, try + 1, fence, apart and #taken or 0, reason)
    redis.call('ZADD', running, now + lease, id)
    redis.call('RPUSH', claim, id)
    for _, value in ipairs({id, at, try + 1, task[2]}) do
      reply[#reply + 1] = value
    end
  end
end
for _, id in ipairs(fresh) do
  local state, at, try, given, group, reason = parse(redis.call('HGET', tasks, id))
  if state == 's' and group == 0 then
    write(id, state, at, try, given, half, reason)
  end
end
local most = count
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
if fence then
  redis.call('PEXPIRE', claim, answer)
  redis.call('HSET', head, 'fence', fence)
end
if fence or #over > 0 or forgotten > 0 then
  local last = now + math.max(lease, buried)
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
end
reply[1] = next_moment(later)
return reply
