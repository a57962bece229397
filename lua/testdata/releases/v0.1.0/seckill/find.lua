-- Seckill: finds the buyer of a reservation in one bucket. A caller that knows the buyer knows the bucket;
-- one that confirms by operation ID alone has to ask all buckets.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
-- Returns {reason, state, buyer}
--       reason    ok, not_ready (no such bucket), gone (no such reservation), lost reservations (as
--                 seckill_reserve says)
--       state     held, sold, expired or cancelled

local sale, reservations = KEYS[1], KEYS[4]

if redis.call('EXISTS', sale) == 0 then
  return {'not_ready', '', ''}
end
if redis.call('EXISTS', reservations) == 0 then
  return {'lost reservations', '', ''}
end
local record = redis.call('HGET', reservations, ARGV[1])
if not record then
  return {'gone', '', ''}
end
local state, buyer = string.match(record, '^(%a+) (%S+) ')
return {'ok', state, buyer}
