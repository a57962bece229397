-- Seckill: adds units to the stock of a sale, or removes units that are left, once per operation ID.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise, and "restock|ID" -> units: no reservation has a '|'
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 operation     the operation ID, encoded
--       2 units         to add; negative: to remove
--       3 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, stock, left, held, sold, epoch}
--       reason    ok (also when the operation was done before), not_ready (no such sale), conflict (the
--                 operation had other units), too_few (fewer are left than are to be removed), too_many (the
--                 stock would exceed 2^53 - 1), lost PART (as seckill_reserve says)

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, units = ARGV[1], ARGV[2]
local now = tonumber(ARGV[3])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms', 'epoch')
if not s[1] then
  return {'not_ready', 0, 0, 0, 0, ''}
end
local terms = s[5]
-- shared sale_stock
local stock, left, held, sold = s[1] + 0, s[2] + 0, s[3] + 0, s[4] + 0
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
-- end sale_stock
-- shared sale_terms
local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
-- end sale_terms
-- shared sale_whole
-- Each part has an entry '|' from the opening on, so that one that does not exist was lost.
local lost
if redis.call('EXISTS', buyers, holds, reservations, outbox or holds) < 4 then
  lost = redis.call('EXISTS', reservations) == 0 and 'reservations' or nil
  lost = redis.call('EXISTS', holds) == 0 and 'holds' or lost
  lost = redis.call('EXISTS', buyers) == 0 and 'buyers' or lost
  ends = 0
end
-- end sale_whole
if lost then
  return {'lost ' .. lost, stock, left, held, sold, ''}
end
local epoch = s[6] or ''

local done = redis.call('HGET', reservations, 'restock|' .. id)
if done then
  return {done == units and 'ok' or 'conflict', stock, left, held, sold, epoch}
elseif left + units < 0 then
  return {'too_few', stock, left, held, sold, epoch}
elseif stock + units > 2^53 - 1 then
  return {'too_many', stock, left, held, sold, epoch}
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

redis.call('HSET', reservations, 'restock|' .. id, units)
stock = redis.call('HINCRBY', sale, 'stock', units)
left = redis.call('HINCRBY', sale, 'left', units)
redis.call('HINCRBY', sale, 'moves', '1')
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'restocked', 'id', id, 'quantity', units)
end

-- shared sale_keep
-- All keys end at the same time. It is a little later than the sale needs, so that most changes leave it.
local least = math.max(now, closes) + keep
if least > ends + 0 then
  ends = least + math.floor(keep / 64)
  local ttl = string.format('%.0f', ends - now)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  redis.call('HSET', sale, 'terms', (string.gsub(terms, '%S+$', string.format('%.0f', ends))))
end
-- end sale_keep
return {'ok', stock, left, held, sold, epoch}
