-- Buckets: lends units of one bucket to another. They leave this bucket's stock and are on their way until
-- the other bucket has accepted them (buckets_accept) and the loan is finished here (buckets_keep). The loan
-- stays recorded here all that time, so that any process can finish it, and no loan is lost with the process
-- that began it.
--
-- KEYS  1 sale          hash, as seckill_open writes it, and the loans: "lent|BUCKET" -> "number units", the
--                       last one to that bucket, of 0 units when it is finished; "accepted|BUCKET" -> number,
--                       of the last one from that bucket
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events. Of a loan, both buckets have an
--                       event moved: its id is "from-to-number", its quantity is negative where they left
-- ARGV  1 from     this bucket's number
--       2 to       the other bucket's number
--       3 want     units, 1 or more: lends this many, or half of the units left when that is more, or all
--                  units left when those are fewer
--       4 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, number, units}
--       reason    ok, none (nothing is left), not_ready (no such bucket), lost PART (as seckill_reserve
--                 says: a bucket that refuses its own buyers does not give their units to those of others)
--       number    of the loan: loans between two buckets are numbered, one at a time. A loan that is on its
--                 way is returned, and nothing more is lent

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local from, to, want = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = tonumber(ARGV[4])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms', 'lent|' .. to)
if not s[1] then
  return {'not_ready', 0, 0}
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
  return {'lost ' .. lost, 0, 0}
end

local number, under_way = string.match(s[6] or '0 0', '^(%d+) (%d+)$')
number, under_way = tonumber(number), tonumber(under_way)
if under_way > 0 then
  return {'ok', number, under_way}
elseif left == 0 then
  return {'none', 0, 0}
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local lent = math.min(left, math.max(want, math.floor(left / 2)))
local units = string.format('%.0f', lent)
number = number + 1
redis.call('HSET', sale, 'lent|' .. to, string.format('%.0f ', number) .. units)
redis.call('HINCRBY', sale, 'stock', '-' .. units)
redis.call('HINCRBY', sale, 'left', '-' .. units)
redis.call('HINCRBY', sale, 'moves', '1')
if outbox then
  local id = from .. '-' .. to .. '-' .. string.format('%.0f', number)
  redis.call('XADD', outbox, '*', 'event', 'moved', 'id', id, 'quantity', '-' .. units)
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
return {'ok', number, lent}
