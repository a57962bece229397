-- Seckill: returns expired holds to the stock, some at a time, and reports what is left in the sale, or in
-- one of its buckets, and which of its loans are on their way (see seckill_lend).
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reclaim       how many holds one call returns to the stock at most
--       2 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, swept, left, moves, to, number, units, to, number, units, ...}
--       reason    ok, not_ready (no such sale)
--       swept     the number of holds returned to the stock
--       moves     as in seckill_open: when two calls report the same, left has not grown in between
--       to        the bucket that a loan is on its way to, its number and its units; for each such loan

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reclaim, now = ARGV[1], tonumber(ARGV[2])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s, loans = {}, {}
local fields = redis.call('HGETALL', sale)
for i = 1, #fields, 2 do
  local name, value = fields[i], fields[i + 1]
  s[name] = value
  local to = string.match(name, '^lent|(%d+)$')
  if to then
    local number, units = string.match(value, '^(%d+) (%d+)$')
    if units ~= '0' then
      loans[#loans + 1], loans[#loans + 2], loans[#loans + 3] = tonumber(to), tonumber(number), tonumber(units)
    end
  end
end
if not s.closes then
  return {'not_ready', 0, 0, 0}
end
local closes, keep, left = tonumber(s.closes), tonumber(s.keep), tonumber(s.left)

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

local over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
for _, reservation in ipairs(over) do
  expire(reservation)
end
if #over > 0 then
  -- shared keep_keys
  local ttl = keep + math.max(closes - now, 0)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  -- end keep_keys
end
return {'ok', #over, left, tonumber(s.moves or 0) + #over, unpack(loans)}
