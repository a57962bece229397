-- Seckill: reports the buckets of a sale; marks the sale as ready; renews the TTL of the root; closes the
-- sale.
--
-- KEYS  1 root       hash, as seckill_begin writes it
-- ARGV  1 epoch      of a sale whose buckets are all open: marks it as ready and renews the TTL of its root;
--                    absent or empty: only reports
--       2 closes     1: the sale with that epoch closes now, unless it has closed; 0, absent or empty: it
--                    stays unchanged
--       3 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns {state, buckets, epoch, spare, marked}
--       state     none (no such sale), one (a sale of one bucket), opening, ready
--       spare     milliseconds. A change of one bucket does not renew the root and the other buckets, so keep
--                 is a tenth more than the sale needs; a change after this long has to renew them all
--       marked    1 when this call marked the sale as ready

local root, epoch, close, now = KEYS[1], ARGV[1] or '', ARGV[2] or '', tonumber(ARGV[3])

if redis.call('HEXISTS', root, 'stock') == 1 then
  return {'one', 1, '', 0, 0}
end
local r = redis.call('HMGET', root, 'buckets', 'epoch', 'ready', 'sale')
if not r[1] then
  return {'none', 0, '', 0, 0}
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local before, closes, after, keep = string.match(r[4], '^(%d+ %d+ )(%d+)( %d+ %d+ (%d+))$')
closes, keep = tonumber(closes), tonumber(keep)
local marked = 0
if r[2] == epoch then
  local closing = close == '1' and (closes == 0 or closes > now)
  if closing then
    closes = now
  end
  -- PEXPIRE goes first: a full Redis accepts it, and then accepts the rest, because the script has already
  -- written.
  redis.call('PEXPIRE', root, keep + math.max(closes - now, 0))
  if closing then
    redis.call('HSET', root, 'sale', before .. string.format('%.0f', closes) .. after)
  end
  if r[3] ~= '1' then
    redis.call('HSET', root, 'ready', '1')
    r[3], marked = '1', 1
  end
end
local spare = redis.call('PTTL', root) - keep - math.max(closes - now, 0) + math.floor(keep / 11)
return {r[3] == '1' and 'ready' or 'opening', tonumber(r[1]), r[2], math.max(spare, 0), marked}
