-- Seckill: puts an item on sale, once. A sale that exists stays unchanged, so a restart cannot reset its
-- stock.
--
-- KEYS  1 sale          hash: stock, left, held, sold; terms, "opens closes per_buyer hold keep ends", the
--                       parameters below and until when all keys are kept; epoch; moves, a number that grows
--                       with each change that adds units to left. A bucket of a sale also has its loans: see
--                       buckets_lend
--       2 buyers        hash, as seckill_reserve writes it. Each of these three has an entry '|' from the
--                       opening on, so that a key that is lost is noticed. Of buyers it is the epoch
--       3 holds         sorted set, likewise; '|' has an infinite score
--       4 reservations  hash, likewise; '|' -> "epoch stock opens closes per_buyer hold keep", stock as it
--                       was opened with
--       5 outbox        stream: each entry is one event of the sale, appended by the script that causes it;
--                       absent: no events
--                       event     opened, held, sold, withdrawn, cancelled, expired, restocked, closed; of a
--                                 bucket also moved, see buckets_lend
--                       quantity  units; of opened: the stock; of restocked: the units added; closed has none
--                       id        the operation ID, encoded: of a restock its own, else the reservation's;
--                                 opened and closed have none
--                       buyer     encoded: of held, sold, withdrawn, cancelled, expired
--                       ends      of held: when the hold ends, in milliseconds since 1970
--                       late      of sold: 1 when the reservation had expired, so that its units came from
--                                 those left; else 0
--                       epoch     of opened: the sale's
-- ARGV  1 stock      units, 1 or more
--       2 opens      milliseconds since 1970; 0: at once
--       3 closes     milliseconds since 1970; 0: never
--       4 per_buyer  units that one buyer may have
--       5 hold       milliseconds for which a reservation waits to be confirmed
--       6 keep       milliseconds for which the sale is kept after the last change or the closing, whichever
--                    is later, and up to a 64th longer
--       7 epoch      names this opening; absent or empty: now
--       8 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns 1 when this call opened the sale, 0 when it existed, -1 when there is none, but other keys of an
-- earlier one are: then nothing is opened.

local sale, outbox = KEYS[1], KEYS[5]
local stock, closes, keep = ARGV[1], ARGV[3], ARGV[6]
local epoch, now = ARGV[7] or '', tonumber(ARGV[8])

if redis.call('EXISTS', sale) == 1 then
  return 0
elseif redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
  return -1 -- to open it again would sell again what those have bought
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if epoch == '' then
  epoch = string.format('%.0f', now)
end

local opened = table.concat(ARGV, ' ', 2, 6)
local terms, ends = opened .. ' 0', 0
redis.call('HSET', sale, 'stock', stock, 'left', stock, 'held', '0', 'sold', '0',
  'terms', terms, 'epoch', epoch, 'moves', '0')
redis.call('HSET', KEYS[2], '|', epoch)
redis.call('ZADD', KEYS[3], '+inf', '|')
redis.call('HSET', KEYS[4], '|', table.concat({epoch, stock, opened}, ' '))
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'opened', 'quantity', stock, 'epoch', epoch)
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
return 1
