-- Buckets: reports the buckets; marks the sale as ready; renews the TTL of the root; closes the
-- sale; restores the root.
--
-- KEYS  1 root       hash, as buckets_begin writes it
--       2 copy       likewise; where it was lost, a call that marks, renews or closes writes it again
-- ARGV  1 epoch      of a sale whose buckets are all open: it is ready from now on, and its root is kept
--                    anew; absent or empty: only reports
--       2 change     close: the sale with that epoch closes now; where it has closed, nothing changes.
--                    restore: a root that was lost is written again from its copy, as ready as it was, and is
--                    kept as long as that. Absent or empty: neither
--       3 now        milliseconds since 1970; absent or empty: the server's clock
-- Returns {state, buckets, epoch, spare, marked}
--       state     none (no such sale), opening, ready
--       spare     milliseconds. A change of one bucket does not renew the root and the other buckets, so keep
--                 is a tenth more than the sale needs; a change after this long has to renew them all
--       marked    1 when this call marked the sale as ready, closed it, or restored the root

local root, epoch, change, now = KEYS[1], ARGV[1] or '', ARGV[2] or '', tonumber(ARGV[3])

local r, marked = redis.call('HMGET', root, 'buckets', 'epoch', 'ready', 'sale'), 0
if not r[1] and change == 'restore' then
  r, marked = redis.call('HMGET', KEYS[2], 'buckets', 'epoch', 'ready', 'sale'), 1
end
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
-- A root that outlives its buckets is a sale that nobody can buy from or open again. So it is kept anew only
-- where they are.
local closed = closes > 0 and closes <= now
if r[2] == epoch and not (change == 'close' and closed and r[3] == '1') then
  if change == 'close' and not closed then
    closes, marked = now, 1
  end
  if r[3] ~= '1' and change ~= 'restore' then
    r[3], marked = '1', 1
  end
  r[4] = before .. string.format('%.0f', closes) .. after
  local ttl = keep + math.max(closes - now, 0)
  if change == 'restore' then
    ttl = redis.call('PTTL', marked == 1 and KEYS[2] or root)
  end
  -- PEXPIRE goes first: a full Redis lets it pass, and then the rest as well, since the script has written.
  redis.call('PEXPIRE', root, ttl)
  for i = 1, 2 do
    redis.call('HSET', KEYS[i], 'buckets', r[1], 'epoch', r[2], 'ready', r[3], 'sale', r[4])
    redis.call('PEXPIRE', KEYS[i], ttl)
  end
  redis.call('HSET', KEYS[2], '|', epoch)
end
local spare = redis.call('PTTL', root) - keep - math.max(closes - now, 0) + math.floor(keep / 11)
return {r[3] == '1' and 'ready' or 'opening', tonumber(r[1]), r[2], math.max(spare, 0), marked}
