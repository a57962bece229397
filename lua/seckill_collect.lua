-- Seckill: tells what a bucket has left and which of its loans are on their way (see seckill_lend), after it has given holds
-- whose time is over back to the stock, some at a time.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reclaim  how many holds one call takes back at most
--       2 now      milliseconds; absent or empty: the server's clock
-- Returns {reason, swept, left, moves, to, number, units, to, number, units, ...}
--       reason    ok, not_ready (no such bucket)
--       swept     the number of holds taken back
--       moves     as seckill_open says: when it is the same twice, left has not grown in between
--       to        the bucket that a loan is on its way to, its number and its units; for each such loan

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reclaim = ARGV[1]
local now = tonumber(ARGV[2])

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local s = redis.call('HMGET', sale, 'closes', 'keep')
if not s[1] then
  return {'not_ready', 0, 0, 0}
end
local closes, keep = tonumber(s[1]), tonumber(s[2])

-- Takes one hold back whose time is over, as seckill_reserve does.
local function expire(reservation)
  local record = redis.call('HGET', reservations, reservation)
  local who, back = string.match(record, '^held (%S+) (%d+) ')
  redis.call('ZREM', holds, reservation)
  redis.call('HSET', reservations, reservation, 'expired' .. string.sub(record, 5))
  if redis.call('HINCRBY', buyers, who, '-' .. back) <= 0 then
    redis.call('HDEL', buyers, who)
  end
  redis.call('HINCRBY', sale, 'left', back)
  redis.call('HINCRBY', sale, 'held', '-' .. back)
  redis.call('HINCRBY', sale, 'moves', '1')
  if outbox then
    redis.call('XADD', outbox, '*', 'event', 'expired', 'id', reservation, 'buyer', who, 'quantity', back)
  end
end

local over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
for _, reservation in ipairs(over) do
  expire(reservation)
end
if #over > 0 then
  local ttl = keep + math.max(closes - now, 0)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
end

local counters = redis.call('HMGET', sale, 'left', 'moves')
local answer = {'ok', #over, tonumber(counters[1]), tonumber(counters[2])}
local fields = redis.call('HGETALL', sale)
for i = 1, #fields, 2 do
  local to = string.match(fields[i], '^lent|(%d+)$')
  if to then
    local number, units = string.match(fields[i + 1], '^(%d+) (%d+)$')
    if units ~= '0' then
      table.insert(answer, tonumber(to))
      table.insert(answer, tonumber(number))
      table.insert(answer, tonumber(units))
    end
  end
end
return answer
