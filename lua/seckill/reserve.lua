-- Seckill: holds units of an item for a buyer until they are confirmed or cancelled, or the hold expires; for
-- one or several attempts of one moment. left + held + sold = stock, before and after. A refused attempt only
-- returns expired holds to the stock: this reservation's own hold always, others when the buyer's limit or
-- the stock would refuse.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, buyer -> units held or bought
--       3 holds         sorted set, reservation by the end of its time
--       4 reservations  hash, reservation -> "state buyer quantity end event call call ..."; state: held,
--                       sold, expired, cancelled; event: those of the hold, of the sale and of its
--                       withdrawal in the outbox, with commas between, - when there is none; or its number
--                       among the buyer's failed ones when it was cancelled or has expired; call: those that
--                       got the hold and have not settled, 16 at most, and one that was told of the sale;
--                       "+call" the one that made it; "-call": the last 16 that were taken back, or whose
--                       hold was over when another began. "failed|BUYER" -> how many reservations of a
--                       buyer were cancelled or have expired;
--                       "failed|BUYER|PLACE" -> "reservation events event", one of the last of them with the
--                       events that tell of it: 16, or as many as per_buyer, 500 at most; PLACE is its number
--                       modulo that. Of earlier ones nothing is left. "held|BUYER" -> "reservation
--                       reservation ...", the last 16 that a buyer has held while having others, or the only
--                       one that is held. "restock|ID" -> units, see seckill_restock
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reclaim       how many expired holds an attempt returns to the stock at most
--       2 now           milliseconds since 1970; empty: the server's clock
--       then for each attempt, in the order of arrival, 1000 at most:
--         reservation   the operation ID, encoded
--         buyer         encoded text: no spaces
--         quantity      units, 1 or more
--         call          one word that names this call, so that a resend after a lost reply is no replay. A
--                       hold returns to the stock when all calls that received it cancel (see seckill_cancel)
-- Returns {reason, replayed, state, left, stock, wait, more}; or one text, "reason left stock state wait" or
--         "reason left stock": duplicate or sold_out where no hold has expired: an array costs the server
--         more. For several attempts {reply, ...}, as if one had asked after the other at this moment;
--         not_ready and lost are one reply
--       reason    ok, not_ready (no such sale), conflict (the ID belongs to another buyer, or was used for
--                 another quantity), in_progress (16 calls got the hold and have not settled), gone (the
--                 call was taken back, or its hold is over), early, closed, duplicate (buyer's limit),
--                 sold_out, lost PART (the part buyers, holds or reservations does not exist any more)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       state     held or sold when ok; when duplicate the buyer's latest reservation that is held, or empty
--       left      units left
--       wait      milliseconds: when held or in progress, until the hold ends; when duplicate, until that of
--                 state ends; when early, until the sale opens; else 0
--       more      1 when there may be more expired holds than were returned to the stock: call again

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local reclaim, now = ARGV[1], tonumber(ARGV[2])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0, 0}
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
  return {'lost ' .. lost, 0, '', left, stock, 0, 0}
end

local last, record_of, has, replies = (#ARGV - 2) / 4, {}, {}, {false} -- a table that grows costs more
if last > 1 then -- two commands read what all attempts need
  local ids, names = {}, {}
  for n = 1, last do
    ids[n], names[n] = ARGV[4 * n - 1], ARGV[4 * n]
  end
  local records = redis.call('HMGET', reservations, unpack(ids))
  local counts = redis.call('HMGET', buyers, unpack(names))
  for n = 1, last do
    record_of[ids[n]], has[names[n]] = records[n], counts[n] or '0'
  end
end

local n, finish, taken, changed, more, none_expired = 1, nil, false, false, nil, held == 0
repeat
  local id, buyer, units, call = ARGV[4 * n - 1], ARGV[4 * n], ARGV[4 * n + 1], ARGV[4 * n + 2]
  local reason, replayed, said, wait, over = nil, 0, '', 0, nil -- over: holds to return first
  local record, marks = record_of[id], '' -- marks: of calls that were taken back
  if record == nil then
    record = redis.call('HGET', reservations, id)
  end
  if record then
    local state, who, had, ends_at, words = string.match(record, '^(%a+) (%S+) (%d+) (%d+) %S+(.*)$')
    marks = string.gsub(words, ' [^-]%S*', '')
    local callers = string.gsub(words, ' %-%S+', '') .. ' '
    local _, undecided = string.gsub(callers, ' ', ' ')
    local first = string.find(callers, ' +' .. call .. ' ', 1, true)
    local known = first or string.find(callers, ' ' .. call .. ' ', 1, true)
    if who ~= buyer or (had ~= units and state ~= 'cancelled') then
      reason = 'conflict'
    elseif string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
      reason = 'gone'
    elseif state == 'held' and ends_at - now <= 0 then
      over = {id}
    elseif state == 'expired' and known then
      reason = 'gone'
    elseif state == 'held' and not known and undecided > 16 then
      -- Each call that gets a hold is stored, or one that fails would give back what another call got. So
      -- that a record stays short, no more calls than these get it.
      reason, wait = 'in_progress', ends_at - now
    elseif state == 'held' or state == 'sold' then
      reason, replayed, said = 'ok', first and 0 or 1, state
      wait = state == 'held' and ends_at - now or 0
      if not known and (state == 'held' or undecided < 3) then -- one more of a sale: nothing withdraws it
        record_of[id] = record .. ' ' .. call
        redis.call('HSET', reservations, id, record_of[id])
      end
    elseif state == 'expired' then -- what calls of the hold that is over send again takes no other
      marks = string.gsub(words, ' [+-]?', ' -')
      local _, before = string.gsub(marks, ' ', ' ')
      if before > 16 then -- so that a record stays short
        marks = string.gsub(marks, ' %S+', '', before - 16)
      end
    end
  end
  if reason or over then
    -- Its record has decided, or changes before that.
  elseif now < opens then
    reason, wait = 'early', opens - now
  elseif closes > 0 and now >= closes then
    reason = 'closed'
  else
    local had, quantity = has[buyer] or redis.call('HGET', buyers, buyer) or '0', units + 0
    if had + quantity > per_buyer then
      reason = 'duplicate'
      for one in string.gmatch(redis.call('HGET', reservations, 'held|' .. buyer) or '', '%S+') do
        local had_one = redis.call('HGET', reservations, one) or ''
        local who, ends_at = string.match(had_one, '^held (%S+) %d+ (%d+)')
        if who == buyer and ends_at - now > 0 then -- an ID that was forgotten may be another buyer's by now
          said, wait = one, ends_at - now
        end
      end
    elseif left < quantity then
      reason = 'sold_out'
    else
      finish = finish or string.format('%.0f', now + hold)
      local event, theirs = '-', id
      if had ~= '0' then
        theirs = redis.call('HGET', reservations, 'held|' .. buyer)
        theirs = theirs and theirs .. ' ' .. id or id
        local _, earlier = string.gsub(theirs, ' ', ' ')
        if earlier > 15 then
          theirs = string.gsub(theirs, '^%S+ ', '')
        end
      end
      -- HINCRBY would search for the field twice. A number that is text already is cheaper.
      had = had == '0' and units or had + quantity
      redis.call('HSET', buyers, buyer, had)
      redis.call('ZADD', holds, finish, id)
      if outbox then
        event = redis.call('XADD', outbox, '*', 'event', 'held', 'id', id, 'buyer', buyer, 'quantity', units,
          'ends', finish)
      end
      record = 'held ' .. buyer .. ' ' .. units .. ' ' .. finish .. ' ' .. event .. marks .. ' +' .. call
      redis.call('HSET', reservations, id, record, 'held|' .. buyer, theirs)
      if n < last then
        record_of[id], has[buyer] = record, had
      end
      left, s[2], taken, more = left - quantity, nil, true, nil -- s[2] is the text of left
      reason, said, wait = 'ok', 'held', hold + 0
    end
    if reason ~= 'ok' and not more and not none_expired then
      -- ZCOUNT costs less than half of what a search costs, and mostly finds none.
      none_expired = redis.call('ZCOUNT', holds, '-inf', now) == 0
      if not none_expired then
        over = redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, reclaim)
        more = #over == tonumber(reclaim) and 1 or 0
      end
    end
  end

  if taken and (over or n == last) then
    redis.call('HSET', sale, 'left', left, 'held', stock - left - sold)
    taken, changed = false, true
  end
  if over then
    -- Made here, where they are rarely needed: functions that use the script's variables cost as much as
    -- commands.
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
    for _, reservation in ipairs(over) do
      expire(reservation)
    end
    record_of, has, s[2], changed = {}, {}, nil, true
  elseif not more and (reason == 'duplicate' or reason == 'sold_out') then
    s[2] = s[2] or string.format('%.0f', left)
    replies[n] = reason .. ' ' .. s[2] .. ' ' .. s[1] .. (wait > 0 and ' ' .. said .. ' ' .. wait or '')
    n = n + 1
  else
    replies[n] = {reason, replayed, said, left, stock, wait, more or 0}
    n, more = n + 1, nil
  end
until n > last
if changed then
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
return last == 1 and replies[1] or replies
