-- Buckets: begins to open a sale. The first call decides the figures; all later calls open the same sale, so
-- a process that dies half-way does no harm. Nothing is sold before buckets_root marks the sale as ready.
--
-- KEYS  1 root       the key that a sale without buckets has as its sale: there is one or the other. Hash:
--                    buckets, epoch, ready (0 or 1), and sale -> "stock opens closes per_buyer hold keep"
--       2 copy       the key that a sale without buckets has as its buyers. Hash: the same as the root, and
--                    '|'; a lost root is restored from it
--       3...         the other keys that a sale without buckets has
-- ARGV  1 buckets    how many, 2 or more
--       2 to 7       stock, opens, closes, per_buyer, hold, keep: of the whole sale, as seckill_open takes
--                    them
--       8 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns {state, buckets, epoch, stock, opens, closes, per_buyer, hold, keep}, the last six as text
--       state     remains (there is no root, but keys of an earlier sale, or of one without buckets, are:
--                 nothing is begun), opening (the buckets are to be opened, and then marked as ready), ready
--       epoch     milliseconds: when the opening began; it names this sale among others of the same item, and
--                 is part of the keys of its buckets

local root, buckets, now = KEYS[1], ARGV[1], tonumber(ARGV[8])

local r = redis.call('HMGET', root, 'buckets', 'epoch', 'ready', 'sale')
if not r[1] and redis.call('EXISTS', unpack(KEYS)) > 0 then
  return {'remains', 0, '', '0', '0', '0', '0', '0', '0'}
elseif not r[1] then
  -- shared clock
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  -- end clock
  local closes, keep = tonumber(ARGV[4]), tonumber(ARGV[7])
  r = {buckets, string.format('%.0f', now), '0', table.concat(ARGV, ' ', 2, 7)}
  for i = 1, 2 do
    redis.call('HSET', KEYS[i], 'buckets', r[1], 'epoch', r[2], 'ready', r[3], 'sale', r[4])
    redis.call('PEXPIRE', KEYS[i], keep + math.max(closes - now, 0))
  end
  redis.call('HSET', KEYS[2], '|', r[2])
end
local stock, opens, closes, per_buyer, hold, keep = string.match(r[4],
  '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
return {r[3] == '1' and 'ready' or 'opening', tonumber(r[1]), r[2], stock, opens, closes, per_buyer, hold,
  keep}
