-- Seckill: reports the buckets of a sale; marks the sale as ready; renews the TTL of the root; closes the
-- sale.
--
-- KEYS  1 root       hash, as seckill_begin writes it
--       2 copy       likewise; where it was lost, a call that marks, renews or closes writes it again
-- ARGV  1 epoch      of a sale whose buckets are all open: it is ready from now on, and its root is kept
--                    anew; absent or empty: only reports
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
  if r[3] ~= '1' then
    r[3], marked = '1', 1
  end
  r[4] = before .. string.format('%.0f', closes) .. after
  -- PEXPIRE goes first: a full Redis lets it pass, and then the rest as well, since the script has written.
  redis.call('PEXPIRE', root, keep + math.max(closes - now, 0))
  for i = 1, 2 do
    redis.call('HSET', KEYS[i], 'buckets', r[1], 'epoch', r[2], 'ready', r[3], 'sale', r[4])
  end
  redis.call('HSET', KEYS[2], '|', epoch)
  redis.call('PEXPIRE', KEYS[2], keep + math.max(closes - now, 0))
end
local spare = redis.call('PTTL', root) - keep - math.max(closes - now, 0) + math.floor(keep / 11)
return {r[3] == '1' and 'ready' or 'opening', tonumber(r[1]), r[2], math.max(spare, 0), marked}
