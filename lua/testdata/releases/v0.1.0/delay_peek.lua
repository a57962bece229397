-- Delay: counts the tasks of a slot, and lists the first ones of a state. It writes nothing.
--
-- KEYS  1 tasks    hash, as delay_schedule writes it
--       2 due      zset
--       3 running  zset
--       4 dead     zset
-- ARGV  1 state    p (pending), r (running) or x (dead); empty: none
--       2 count    tasks to list, at most
--       3 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {pending, due, running, dead, id, at, try, ends, reason, ...}
--       due      those of the pending that are due
--       ends     of a running task when its lease ends, of a dead one when it is forgotten, of a pending one
--                when it is due

local tasks, due, running, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local state, count, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local reply = {
  redis.call('ZCOUNT', due, '-inf', '+inf'), redis.call('ZCOUNT', due, '-inf', now),
  redis.call('ZCOUNT', running, '-inf', '+inf'), redis.call('ZCOUNT', dead, '(' .. now, '+inf'),
}
local list = state == 'p' and due or state == 'r' and running or state == 'x' and dead
if not list then
  return reply
end
local least = state == 'x' and '(' .. now or '-inf'
local found = redis.call('ZRANGEBYSCORE', list, least, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
for i = 1, #found, 2 do
  local at, try, reason = string.match(redis.call('HGET', tasks, found[i]) or '',
    '^%l (%d+) (%d+) %d+ %S+ (.*)$')
  if at then
    for _, value in ipairs({found[i], tonumber(at), tonumber(try), tonumber(found[i + 1]), reason}) do
      reply[#reply + 1] = value
    end
  end
end
return reply
