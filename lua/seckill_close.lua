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

local s = redis.call('HMGET', sale, 'opens', 'closes', 'keep')
if not s[1] then
  return -1
end
local opens, closes, keep, ends = tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), 0
if closes > 0 and closes <= now then
  return 0
end

-- PEXPIRE goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written. An operator may need to close a sale at such a time.
closes = now
-- shared sale_keep
-- All keys end at the same time. It is a little later than the sale needs, so that most changes leave it.
local least = math.max(now, closes) + keep
if least > ends then
  ends = least + math.floor(keep / 64)
  local ttl = string.format('%.0f', ends - now)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  redis.call('HSET', sale, 'ends', string.format('%.0f', ends))
end
-- end sale_keep
local moment = string.format('%.0f', now)
redis.call('HSET', sale, 'closes', moment)
if opens > now then
  redis.call('HSET', sale, 'opens', moment) -- else buyers would be told to wait for the opening
end
-- What the sale is restored from, where its key is lost, has to know it as well.
local terms = redis.call('HGET', KEYS[4], '|')
if terms then
  redis.call('HSET', KEYS[4], '|', (string.gsub(terms, '^(%S+ %S+ %S+) %S+', '%1 ' .. moment)))
end
if outbox then
  redis.call('XADD', outbox, '*', 'event', 'closed')
  redis.call('PEXPIRE', outbox, string.format('%.0f', ends - now))
end
return 1
