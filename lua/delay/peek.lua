-- Delay: counts the tasks of a slot, and lists the first ones of a state. It writes nothing.
--
-- KEYS  1 tasks    hash, as delay_schedule writes it
--       2 due      zset
--       3 running  zset
--       4 dead     zset
-- ARGV  1 state    p (pending), r (running) or x (dead); empty: none
--       2 count    tasks to list, at most
--       3 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {pending, due, running, dead, id, at, try, ends, reason, ...}; of the pending, count that are not
-- suspect and count suspects
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

-- shared delay_suspects
local suspects = 10000000000000
-- end delay_suspects

local reply = {
  redis.call('ZCOUNT', due, '-inf', '+inf'),
  redis.call('ZCOUNT', due, '-inf', now) + redis.call('ZCOUNT', due, suspects, suspects + now),
  redis.call('ZCOUNT', running, '-inf', '+inf'), redis.call('ZCOUNT', dead, '(' .. now, '+inf'),
}
local list = state == 'p' and due or state == 'r' and running or state == 'x' and dead
if not list then
  return reply
end
local ranges = {{state == 'x' and '(' .. now or '-inf', '+inf'}}
if state == 'p' then
  ranges = {{'-inf', '(' .. suspects}, {suspects, '+inf'}}
end
for _, range in ipairs(ranges) do
  local found = redis.call('ZRANGEBYSCORE', list, range[1], range[2], 'WITHSCORES', 'LIMIT', 0, count)
  for i = 1, #found, 2 do
    local at, try, reason = string.match(redis.call('HGET', tasks, found[i]) or '',
      '^%l (%d+) (%d+) %d+ %d+ (.*)$')
    if at then
      local ends = tonumber(found[i + 1]) % suspects
      for _, value in ipairs({found[i], tonumber(at), tonumber(try), ends, reason}) do
        reply[#reply + 1] = value
      end
    end
  end
end
return reply
