-- Seckill: closes a sale now. A closed sale stays unchanged. A sale of which a part was lost closes as well:
-- its operator may want it closed before Repair lets buyers in again.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns 1 when this call closed the sale, 0 when it was closed already, -1 when there is no such sale.

local sale, outbox = KEYS[1], KEYS[5]
local now = tonumber(ARGV[1])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local terms = redis.call('HGET', sale, 'terms')
if not terms then
  return -1
end
-- shared sale_terms
local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
-- end sale_terms
if closes > 0 and closes <= now then
  return 0
end

-- PEXPIRE goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written. An operator may need to close a sale at such a time.
local moment = string.format('%.0f', now)
local opened = opens > now and moment or '%1' -- buyers are not told to wait for an opening that does not come
terms = string.gsub(terms, '^(%S+) %S+', opened .. ' ' .. moment)
closes, ends = now, 0
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
-- What the sale is restored from, where its key is lost, has to know it as well.
local source = redis.call('HGET', KEYS[4], '|')
if source then
  redis.call('HSET', KEYS[4], '|', (string.gsub(source, '^(%S+ %S+ %S+) %S+', '%1 ' .. moment)))
end
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'closed')
  redis.call('PEXPIRE', outbox, string.format('%.0f', ends - now))
end
return 1
