-- Buckets: accepts the units of a loan from another bucket (see buckets_lend), once, whoever delivers them
-- and however late: also where a part of this bucket was lost, since the loan is in the sale alone, and no
-- other bucket can have its units.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 from     the number of the bucket that lends
--       2 to       this bucket's number
--       3 number   of the loan: an accepted loan, and every one before it, is not accepted again
--       4 units    of the loan
--       5 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns 1 when this call accepted them, 0 when an earlier call did, -1 when there is no such bucket.

local sale, outbox = KEYS[1], KEYS[5]
local from, to, number, units = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = tonumber(ARGV[5])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms', 'accepted|' .. from)
if not s[1] then
  return -1
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
if tonumber(number) <= tonumber(s[6] or 0) then
  return 0
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- PEXPIRE goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written. Nobody can sell units that are on their way.
ends = 0
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
redis.call('HSET', sale, 'accepted|' .. from, number)
redis.call('HINCRBY', sale, 'stock', units)
redis.call('HINCRBY', sale, 'left', units)
redis.call('HINCRBY', sale, 'moves', '1')
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'moved', 'id', from .. '-' .. to .. '-' .. number,
    'quantity', units)
  redis.call('PEXPIRE', outbox, string.format('%.0f', ends - now))
end
return 1
