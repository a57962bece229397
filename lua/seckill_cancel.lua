-- Seckill: returns a hold to the stock, once. A sold reservation stays sold; a hold that another call has
-- received stays held.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
--       2 call          as it was given to seckill_reserve: cancels for that call only; absent or empty: for
--                       any
--       3 stays         1: when no other call has received the hold, it stays for a later call with the same
--                       operation ID; 0, absent or empty: it returns to the stock
--       4 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, buyer, quantity, left, stock}
--       reason    ok, not_ready (no such sale), conflict (the reservation is sold)
--       replayed  1 when there was nothing to return: cancelled before, expired, never made, or made by
--                 another call

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, call = ARGV[1], ARGV[2] or ''
local stays, now = ARGV[3] == '1', tonumber(ARGV[4])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'closes', 'keep')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0}
end
-- shared sale_stock
local stock, left, held, sold = tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), tonumber(s[4])
local closes, keep = tonumber(s[5]), tonumber(s[6])
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
-- end sale_stock

local record = redis.call('HGET', reservations, id)
if not record then
  return {'ok', 1, '', 0, left, stock}
end
local state, buyer, units, finish, callers = string.match(record, '^(%a+) (%S+) (%d+) (%d+)(.*)$')
local quantity = tonumber(units)
if state == 'sold' then
  return {'conflict', 0, buyer, quantity, left, stock}
elseif state == 'expired' then
  return {'ok', 1, buyer, quantity, left, stock}
end
if call ~= '' then
  -- shared other_callers
  local others, told = {}, false
  for one in string.gmatch(callers, '%S+') do
    if one == call then
      told = true
    else
      others[#others + 1] = one
    end
  end
  -- end other_callers
  if told and (stays or #others > 0) then
    redis.call('HSET', reservations, id, table.concat({'held', buyer, units, finish, unpack(others)}, ' '))
  end
  if stays or not told or #others > 0 then
    return {'ok', 1, buyer, quantity, left, stock}
  end
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
left = redis.call('HINCRBY', sale, 'left', units)
redis.call('HINCRBY', sale, 'held', '-' .. units)
redis.call('HINCRBY', sale, 'moves', '1')
if redis.call('HINCRBY', buyers, buyer, '-' .. units) <= 0 then
  redis.call('HDEL', buyers, buyer)
end
redis.call('HDEL', reservations, id)
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'cancelled', 'id', id, 'buyer', buyer, 'quantity', units)
end

-- shared keep_keys
local ttl = keep + math.max(closes - now, 0)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
-- end keep_keys
return {'ok', 0, buyer, quantity, left, stock}
