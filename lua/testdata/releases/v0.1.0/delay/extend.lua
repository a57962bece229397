-- Delay: renews the leases of running tasks.
--
-- KEYS  1 head     hash, as delay_schedule writes it
--       2 tasks    hash
--       3 bodies   hash
--       4 due      zset
--       5 running  zset
--       6 done     zset
--       7 dead     zset
-- ARGV  1 lease    milliseconds from now on
--       2 now      milliseconds since 1970; absent or empty: the server's clock
--       then id, fence, ...  of each task
-- Returns the numbers of the tasks that do not run under their fence any more, in the order of ARGV, from 1
-- on.

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local lease, now = tonumber(ARGV[1]), tonumber(ARGV[2])

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

local lost, held = {}, {}
for i = 3, #ARGV, 2 do
  local state, _, _, fence = parse(redis.call('HGET', tasks, ARGV[i]))
  if (state == 'r' or state == 'a') and fence == ARGV[i + 1] then
    held[#held + 1] = ARGV[i]
  else
    lost[#lost + 1] = (i - 1) / 2
  end
end
if held[1] then
  local last = now + lease
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
for _, id in ipairs(held) do
  redis.call('ZADD', running, now + lease, id)
end
return lost
