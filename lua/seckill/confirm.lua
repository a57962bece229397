-- Seckill: turns a hold into a sale. An expired reservation is still sold while units are left.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
--       2 buyer         encoded: whose reservation it has to be
--       3 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, buyer, quantity, left, stock}
--       reason    ok, not_ready (no such sale), gone (the buyer has no such reservation, or it was cancelled,
--                 or its time is over and its units are taken), lost PART (as seckill_reserve says)
--       replayed  1 when it was sold before

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, named, now = ARGV[1], ARGV[2], tonumber(ARGV[3])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0}
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
  return {'lost ' .. lost, 0, '', 0, left, stock}
end

local record = redis.call('HGET', reservations, id)
if not record then
  return {'gone', 0, '', 0, left, stock}
end
local state, buyer, units, finish, words = string.match(record, '^(%a+) (%S+) (%d+) (%d+) %S+(.*)$')
local quantity = tonumber(units)
if named ~= buyer then -- as if there were none: IDs can be guessed
  return {'gone', 0, '', 0, left, stock}
elseif state == 'sold' then
  return {'ok', 1, buyer, quantity, left, stock}
elseif state == 'cancelled' then
  return {'gone', 0, buyer, 0, left, stock}
end
if state == 'expired' and
    (left < quantity or tonumber(redis.call('HGET', buyers, buyer) or 0) + quantity > per_buyer) then
  return {'gone', 0, buyer, quantity, left, stock}
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- ZREM goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written.
redis.call('ZREM', holds, id)
redis.call('HSET', reservations, id, table.concat({'sold', buyer, units, finish, '-'}, ' ') .. words)
if redis.call('HGET', reservations, 'held|' .. buyer) == id then
  redis.call('HDEL', reservations, 'held|' .. buyer)
end
if state == 'held' then
  redis.call('HINCRBY', sale, 'held', '-' .. units)
else
  redis.call('HINCRBY', buyers, buyer, units)
  left = redis.call('HINCRBY', sale, 'left', '-' .. units)
end
redis.call('HINCRBY', sale, 'sold', units)
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'sold', 'id', id, 'buyer', buyer, 'quantity', units,
    'late', state == 'expired' and '1' or '0')
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
return {'ok', 0, buyer, quantity, left, stock}
