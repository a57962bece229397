-- Seckill: gives the holds whose time is over back to the stock, some at a time.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reclaim       how many holds one call takes back at most
--       2 now           milliseconds; absent or empty: the server's clock
-- Returns the number of holds taken back, -1 when there is no such sale.

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reclaim = ARGV[1]
local now = tonumber(ARGV[2])

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local s = redis.call('HMGET', sale, 'closes', 'keep')
if not s[1] then
  return -1
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
return #over
