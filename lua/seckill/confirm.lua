-- Seckill: turns a hold into a sale. An expired reservation is still sold while units are left. Other expired
-- holds go back to the stock before it is refused.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
--       2 buyer         encoded: whose reservation it has to be
--       3 reclaim       how many expired holds one call returns to the stock at most
--       4 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, buyer, quantity, left, stock}, and more
--       reason    ok, not_ready (no such sale), gone (the buyer has no such reservation, or it was cancelled,
--                 or its time is over and its units are taken), lost PART (as seckill_reserve says)
--       replayed  1 when it was sold before
--       more      1 when it is gone, and there may be more expired holds: call again

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, named, reclaim, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0}
end
local terms = s[5]
-- shared sale_stock
local stock, left, held, sold = s[1] + 0, s[2] + 0, s[3] + 0, s[4] + 0
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
-- end sale_stock
-- shared sale_terms
local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
-- end sale_terms
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
  return {'lost ' .. lost, 0, '', 0, left, stock}
end

local record = redis.call('HGET', reservations, id)
if not record then
  return {'gone', 0, '', 0, left, stock}
end
local state, buyer, units, finish, event, words =
  string.match(record, '^(%a+) (%S+) (%d+) (%d+) (%S+)(.*)$')
local quantity = tonumber(units)
if named ~= buyer then -- as if there were none: IDs can be guessed
  return {'gone', 0, '', 0, left, stock}
elseif state == 'sold' then
  return {'ok', 1, buyer, quantity, left, stock}
elseif state == 'cancelled' then
  return {'gone', 0, buyer, 0, left, stock}
end
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- Lets all keys live on together: the sale has changed.
local function extend()
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
end

-- Whether there are too few units for an expired reservation, or its buyer may have no more.
local function refused()
  return left < quantity or tonumber(redis.call('HGET', buyers, buyer) or 0) + quantity > per_buyer
end

if state == 'expired' and refused() then
  -- shared sale_fail
  -- Adds a reservation to the failed ones of its buyer, with the events that tell of it, and returns its
  -- number among them. Only the last 16 are kept, so that a buyer who fails again and again cannot fill the
  -- memory; or as many as the buyer may have units, 500 at most, since so many holds can end at once and be
  -- paid late. They stand in a ring of fields, so that one more costs the same however many there are.
  local function remember(reservation, who, begun, ended)
    local most, field = math.max(16, math.min(per_buyer, 500)), 'failed|' .. who
    local number = redis.call('HINCRBY', reservations, field, '1')
    local place = field .. '|' .. number % most
    local oldest = number > most and redis.call('HGET', reservations, place)
    redis.call('HSET', reservations, place, reservation .. ' ' .. begun .. ' ' .. ended)
    if oldest then
      local first, events, known = string.match(oldest, '^%S+'), {}, true
      for event in string.gmatch(string.match(oldest, ' .*'), '[^ ,]+') do
        events[#events + 1], known = event, known and event ~= '-'
      end
      if outbox and known then -- all of them, or the rest would tell of nothing
        redis.call('XDEL', outbox, unpack(events))
      end
      local state, last = string.match(redis.call('HGET', reservations, first) or '',
        '^(%a+) %S+ %d+ %d+ (%S+)')
      if (state == 'cancelled' or state == 'expired') and tonumber(last) == number - most then
        redis.call('HDEL', reservations, first)
      end
    end
    return number
  end

  -- Gives a hold back: from now on its record has the state cancelled or expired. ZREM goes first: a full
  -- Redis lets it pass, and then the rest as well, since the script has written.
  local function fail(reservation, state, record)
    local who, back, finish, begun, words = string.match(record, '^held (%S+) (%d+) (%d+) (%S+)(.*)$')
    redis.call('ZREM', holds, reservation)
    if redis.call('HINCRBY', buyers, who, '-' .. back) <= 0 then
      redis.call('HDEL', buyers, who)
    end
    if redis.call('HGET', reservations, 'held|' .. who) == reservation then
      redis.call('HDEL', reservations, 'held|' .. who)
    end
    left = redis.call('HINCRBY', sale, 'left', back)
    redis.call('HINCRBY', sale, 'held', '-' .. back)
    redis.call('HINCRBY', sale, 'moves', '1')
    local ended = '-'
    if outbox then
      ended = redis.call('XADD', outbox, '*', 'event', state, 'id', reservation, 'buyer', who,
        'quantity', back)
    end
    local number = remember(reservation, who, begun, ended)
    redis.call('HSET', reservations, reservation,
      table.concat({state, who, back, finish, number}, ' ') .. words)
  end

  -- Gives a hold back whose time is over. A timer without a hold, which no script leaves, must not end
  -- those that find it in an error.
  local function expire(reservation)
    local record = redis.call('HGET', reservations, reservation) or ''
    if string.sub(record, 1, 5) == 'held ' then
      fail(reservation, 'expired', record)
    else
      redis.call('ZREM', holds, reservation)
    end
  end
  -- end sale_fail
  local over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
  for _, reservation in ipairs(over) do
    expire(reservation)
  end
  if #over > 0 then
    extend()
  end
  if not redis.call('HGET', reservations, id) then -- it was the oldest that its buyer's holds leave behind
    return {'gone', 0, '', 0, left, stock}
  elseif refused() then
    return {'gone', 0, buyer, quantity, left, stock, #over == tonumber(reclaim) and 1 or nil}
  end
end

-- ZREM goes first: a full Redis accepts it, and then accepts the rest, because the script has already
-- written.
redis.call('ZREM', holds, id)
local events = '-'
if outbox then -- with that of the hold; an expired one has its own among the failed ones of its buyer
  events = (state == 'held' and event .. ',' or '') .. redis.call('XADD', outbox, '*', 'event', 'sold',
    'id', id, 'buyer', buyer, 'quantity', units, 'late', state == 'expired' and '1' or '0')
end
redis.call('HSET', reservations, id, table.concat({'sold', buyer, units, finish, events}, ' ') .. words)
if redis.call('HGET', reservations, 'held|' .. buyer) == id then
  redis.call('HDEL', reservations, 'held|' .. buyer)
end
if state == 'held' then
  redis.call('HINCRBY', sale, 'held', '-' .. units)
else
  redis.call('HINCRBY', buyers, buyer, units)
  left = redis.call('HINCRBY', sale, 'left', '-' .. units)
end
redis.call('HINCRBY', sale, 'sold', units)
extend()
return {'ok', 0, buyer, quantity, left, stock}
