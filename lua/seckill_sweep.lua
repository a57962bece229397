-- Seckill: gives the holds whose time is over back to the stock, some at a time.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
-- ARGV  1 reclaim       how many holds one call takes back at most
--       2 now           milliseconds; absent or empty: the server's clock
-- Returns the number of holds taken back.

local sale, buyers, holds, reservations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reclaim = ARGV[1]
local now = tonumber(ARGV[2])

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

if redis.call('EXISTS', sale) == 0 then
  return 0
end

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
end

local over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
for _, reservation in ipairs(over) do
  expire(reservation)
end
return #over
