-- Delay: ends the try of a running task. The task becomes due again, or it is dead.
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
--       3 reason   of the failure; empty: the one that is stored stays
--       4 pause    milliseconds until it is due again
--       5 tries    how often a task is claimed; one that has been so often is dead. 0: this one is
--       6 unused   1: the try does not count, a suspect stays one, and without a pause the task is due as it
--                  was
--       7 buried   milliseconds for which a dead task is remembered
--       8 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason}
--       reason   ok (due again), dead, lost (the task does not run under this fence). A call that is repeated
--                gets the same while the task stays as it was left

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local id, fence, reason = ARGV[1], ARGV[2], ARGV[3]
local pause, tries, unused, buried = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local now = tonumber(ARGV[8])

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
-- shared delay_suspects
local suspects = 10000000000000
-- end delay_suspects
-- shared delay_wait
local function wait(id, state, at, try, fence, group, reason)
  write(id, state, at, try, fence, group, reason)
  redis.call('ZADD', due, state == 's' and suspects + at or at, id)
end
-- end delay_wait

local state, at, try, holds, group, before = parse(redis.call('HGET', tasks, id))
if holds ~= fence or fence == '0' or state == 'd' then
  return {'lost'}
elseif state == 'x' then
  return {'dead'}
elseif state == 'p' or state == 's' then
  return {'ok'}
end
if reason == '' then
  reason = before
end

redis.call('ZREM', running, id) -- first: a full Redis accepts it, and then the rest
local last, answer = now + buried, 'ok'
if not unused and try >= tries then
  write(id, 'x', at, try, fence, group, reason)
  redis.call('ZADD', dead, last, id)
  answer = 'dead'
else
  if unused then
    try = try - 1
  end
  if not unused or pause > 0 then
    at = now + pause
    last = math.max(last, at)
  end
  wait(id, unused and state == 'a' and 's' or 'p', at, try, fence, group, reason)
end
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
return {answer}
