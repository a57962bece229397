-- Buckets: reports what is left in a bucket, and which of its loans are on their way (see
-- buckets_lend). It changes nothing.
--
-- KEYS  1 sale          hash, as seckill_open and buckets_lend write it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, left, moves, over, to, number, units, to, number, units, ...}
--       reason    ok, not_ready (no such bucket), lost PART (as seckill_reserve says)
--       moves     as seckill_open says: when it is the same twice, left has not grown in between
--       over      the number of holds whose time is over: seckill_sweep returns their units
--       to        the bucket that a loan is on its way to, its number and its units; for each such loan

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s, loans = {}, {}
local fields = redis.call('HGETALL', sale)
for i = 1, #fields, 2 do
  local name, value = fields[i], fields[i + 1]
  s[name] = value
  local to = string.match(name, '^lent|(%d+)$')
  if to then
    local number, units = string.match(value, '^(%d+) (%d+)$')
    if units ~= '0' then
      loans[#loans + 1], loans[#loans + 2], loans[#loans + 3] = tonumber(to), tonumber(number),
        tonumber(units)
    end
  end
end
if not s.stock then
  return {'not_ready', 0, 0, 0}
end
local ends -- which the block changes
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
  return {'lost ' .. lost, 0, 0, 0}
end
return {'ok', tonumber(s.left), tonumber(s.moves or 0), redis.call('ZCOUNT', holds, '-inf', now),
  unpack(loans)}
