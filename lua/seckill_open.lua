-- Seckill: puts an item on sale, once. A sale that exists stays as it is, so a restart can not reset a stock.
--
-- KEYS  1 sale       hash
-- ARGV  1 stock      units, 1 or more
--       2 opens      milliseconds since 1970; 0: at once
--       3 closes     milliseconds since 1970; 0: never
--       4 per_buyer  units that one buyer may have
--       5 hold       milliseconds that a reservation waits to be confirmed
--       6 keep       milliseconds that the sale is kept after the last change or the closing, whichever is later
--       7 now        milliseconds; absent or empty: the server's clock
-- Returns 1 when this call opened the sale, 0 when it existed.

local sale = KEYS[1]
local stock, opens, closes, per_buyer, hold, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local now = tonumber(ARGV[7])

if redis.call('EXISTS', sale) == 1 then
  return 0
end

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

redis.call('HSET', sale, 'stock', stock, 'left', stock, 'held', '0', 'sold', '0',
  'opens', opens, 'closes', closes, 'per_buyer', per_buyer, 'hold', hold, 'keep', keep)
redis.call('PEXPIRE', sale, keep + math.max(closes - now, 0))
return 1
