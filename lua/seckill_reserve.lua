-- Seckill: holds units of an item for a buyer until they are confirmed or cancelled, or the hold expires.
-- left + held + sold = stock, before and after. A refused attempt only returns expired holds to the stock:
-- this reservation's own hold always, others when the buyer's limit or the stock would refuse.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, buyer -> units held or bought
--       3 holds         sorted set, reservation by the end of its hold
--       4 reservations  hash, reservation -> "state buyer quantity end call call ..."; state: held, sold,
--                       expired; call: the calls that received the reservation. Also "restock|ID" -> units,
--                       see seckill_restock
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
--       2 buyer         encoded text: no spaces
--       3 quantity      units, 1 or more
--       4 reclaim       how many expired holds one call returns to the stock at most
--       5 call          one word that names this call, so that a resend after a lost reply is no replay. A
--                       hold returns to the stock when all calls that received it cancel (see seckill_cancel)
--       6 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, state, left, stock, wait, more}
--       reason    ok, not_ready (no such sale), conflict, early, closed, duplicate (buyer's limit), sold_out
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       state     held or sold when ok
--       left      units left
--       wait      milliseconds: when held, until the hold ends; when early, until the sale opens; else 0
--       more      1 when more expired holds may remain: ask again

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, buyer, units, reclaim = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local quantity = tonumber(units)
local call, now = ARGV[5], tonumber(ARGV[6])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'closes', 'keep', 'opens', 'per_buyer', 'hold')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0, 0}
end
-- shared sale_stock
local stock, left, held, sold = tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), tonumber(s[4])
local closes, keep = tonumber(s[5]), tonumber(s[6])
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
-- end sale_stock
local opens, per_buyer, hold = tonumber(s[7]), tonumber(s[8]), tonumber(s[9])

-- Gives all keys the same new TTL: the sale has changed.
local function extend()
  -- shared keep_keys
  local ttl = keep + math.max(closes - now, 0)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  -- end keep_keys
end

-- shared sale_expire
-- Returns one expired hold to the stock. ZREM goes first: a full Redis accepts it, and then accepts the rest,
-- because the script has already written.
local function expire(reservation)
  local record = redis.call('HGET', reservations, reservation)
  local who, back = string.match(record, '^held (%S+) (%d+) ')
  redis.call('ZREM', holds, reservation)
  redis.call('HSET', reservations, reservation, 'expired' .. string.sub(record, 5))
  if redis.call('HINCRBY', buyers, who, '-' .. back) <= 0 then
    redis.call('HDEL', buyers, who)
  end
  left = redis.call('HINCRBY', sale, 'left', back)
  redis.call('HINCRBY', sale, 'held', '-' .. back)
  redis.call('HINCRBY', sale, 'moves', '1')
  if outbox then
    redis.call('XADD', outbox, '*', 'event', 'expired', 'id', reservation, 'buyer', who, 'quantity', back)
  end
end
-- end sale_expire

local record = redis.call('HGET', reservations, id)
if record then
  local state, who, had, finish, callers = string.match(record, '^(%a+) (%S+) (%d+) (%d+)(.*)$')
  local replayed = string.find(callers .. ' ', ' ' .. call .. ' ', 1, true) and 0 or 1
  if who ~= buyer or had ~= units then
    return {'conflict', 0, '', left, stock, 0, 0}
  elseif state == 'sold' then
    return {'ok', replayed, 'sold', left, stock, 0, 0}
  elseif state == 'held' and tonumber(finish) > now then
    if replayed == 1 and #callers < 16 * (#call + 1) then -- few calls share one reservation
      redis.call('HSET', reservations, id, record .. ' ' .. call)
    end
    return {'ok', replayed, 'held', left, stock, finish - now, 0}
  elseif state == 'held' then
    expire(id)
    extend()
  end
end

if now < opens then
  return {'early', 0, '', left, stock, opens - now, 0}
elseif closes > 0 and now >= closes then
  return {'closed', 0, '', left, stock, 0, 0}
end

local function refused()
  if tonumber(redis.call('HGET', buyers, buyer) or 0) + quantity > per_buyer then
    return 'duplicate'
  elseif left < quantity then
    return 'sold_out'
  end
end

local reason, more = refused(), 0
if reason then
  local over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
  for _, reservation in ipairs(over) do
    expire(reservation)
  end
  if #over > 0 then
    extend()
    reason = refused()
  end
  if #over == tonumber(reclaim) then
    more = 1
  end
end
if reason then
  return {reason, 0, '', left, stock, 0, more}
end

local finish = string.format('%.0f', now + hold)
redis.call('HSET', reservations, id, 'held ' .. buyer .. ' ' .. units .. ' ' .. finish .. ' ' .. call)
redis.call('ZADD', holds, finish, id)
redis.call('HINCRBY', buyers, buyer, units)
left = redis.call('HINCRBY', sale, 'left', '-' .. units)
redis.call('HINCRBY', sale, 'held', units)
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'held', 'id', id, 'buyer', buyer, 'quantity', units, 'ends', finish)
end
extend()
return {'ok', 0, 'held', left, stock, hold, 0}
