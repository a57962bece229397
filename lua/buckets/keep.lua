-- Buckets: renews the TTLs of a bucket, because another bucket of the sale has changed, or because
-- the other bucket has accepted a loan (see buckets_lend), which is finished then: its units are no longer on
-- their way. Where a part of the bucket was lost, the others are renewed, since Repair needs them, and a loan
-- is finished as well, since it is noted in the sale alone.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 to            the number of the bucket that borrowed; absent or empty: only renews the TTLs
--       2 number        of the loan
--       3 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns 1, 0 when an earlier call has finished the loan, -1 when there is no such bucket.

local sale = KEYS[1]
local to, number = ARGV[1] or '', ARGV[2]
local now = tonumber(ARGV[3])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s = redis.call('HMGET', sale, 'terms', 'lent|' .. to)
local terms = s[1]
if not terms then
  return -1
end
local last, units = string.match(s[2] or '0 0', '^(%d+) (%d+)$')
if to ~= '' and (last ~= number or units == '0') then
  return 0
end
-- shared sale_terms
local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
-- end sale_terms
-- PEXPIRE goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written.
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
if to ~= '' then
  redis.call('HSET', sale, 'lent|' .. to, number .. ' 0')
end
return 1
