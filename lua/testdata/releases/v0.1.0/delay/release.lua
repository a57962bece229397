-- Delay: gives back what a claim took whose caller does not know of it. The tries do not count.
--
-- KEYS  1 head       hash, as delay_schedule writes it
--       2 tasks      hash
--       3 bodies     hash
--       4 due        zset
--       5 running    zset
--       6 done       zset
--       7 dead       zset
--       8 claim      list, as delay_claim writes it
-- ARGV  1 tombstone  milliseconds for which the claim takes nothing when it arrives late
--       2 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns the number of tasks that were given back

-- shared delay_keys
local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
-- end delay_keys
local claim, tombstone, now = KEYS[8], tonumber(ARGV[1]), tonumber(ARGV[2])

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

local told = redis.call('LRANGE', claim, 0, -1)
if told[1] == 'void' then
  return 0
end
redis.call('DEL', claim) -- first: a full Redis accepts it, and then the rest
redis.call('RPUSH', claim, 'void')
redis.call('PEXPIRE', claim, tombstone)
local given = 0
for i = 2, #told do
  local id = told[i]
  local state, at, try, fence, group, reason = parse(redis.call('HGET', tasks, id))
  if (state == 'r' or state == 'a') and fence == told[1] then
    redis.call('ZREM', running, id)
    wait(id, state == 'a' and 's' or 'p', at, try - 1, fence, group, reason)
    given = given + 1
  end
end
if given > 0 then
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
end
return given
