-- Seckill: returns a hold to the stock, once. What is sold stays sold, unless nobody was told, and a hold
-- that another call got too stays held. The operation ID stays its buyer's. A call that was cancelled before
-- it arrived takes nothing. An expired reservation gives nothing back, and cannot be confirmed any more.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 reservation   the operation ID, encoded
--       2 call          as it was given to seckill_reserve: cancels for that call only; absent or empty: for
--                       any
--       3 stays         1: the hold stays, for a later call with the same operation ID, also when no other
--                       call got it; sold: it goes back also where it is sold, if the call alone got it; all:
--                       it goes back for any call, and call names this cancellation, so that a resend does
--                       not cancel what the buyer has reserved since; 0, absent or empty: it goes back
--       4 buyer         encoded: whose reservation it has to be
--       5 now           milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, buyer, quantity, left, stock}
--       reason    ok, not_ready (no such sale), conflict (the reservation is sold), lost PART (as
--                 seckill_reserve says)
--       replayed  1 when there was nothing to give back: cancelled before, expired, never made, made by
--                 another call, or another buyer's

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, call = ARGV[1], ARGV[2] or ''
local stays, revokes, named, now = ARGV[3] == '1', ARGV[3] == 'sold', ARGV[4], tonumber(ARGV[5])
local any = call == '' or ARGV[3] == 'all'

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

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- Lets all keys live on together: the sale has changed. With first, always: a full Redis lets PEXPIRE pass,
-- and then the rest as well, since the script has written.
local function extend(first)
  if first then
    ends = 0
  end
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

local record = redis.call('HGET', reservations, id)
if not record then
  if not any then
    -- A tombstone.
    extend(true)
    local number = remember(id, named, '-', '-')
    redis.call('HSET', reservations, id, 'cancelled ' .. named .. ' 0 0 ' .. number .. ' -' .. call)
  end
  return {'ok', 1, '', 0, left, stock}
end
local state, buyer, units, finish, event, words = string.match(record, '^(%a+) (%S+) (%d+) (%d+) (%S+)(.*)$')
local quantity = tonumber(units)
if named ~= buyer then -- as if there were none: IDs can be guessed
  return {'ok', 1, '', 0, left, stock}
elseif state == 'sold' then
  local got = string.gsub(words, ' %-%S+', '')
  if not revokes or got ~= ' ' .. call and got ~= ' +' .. call then
    return {'conflict', 0, buyer, quantity, left, stock}
  end
  redis.call('ZREM', holds, id) -- a full Redis lets it pass, and then the rest as well
  redis.call('HINCRBY', sale, 'held', units)
  redis.call('HINCRBY', sale, 'sold', '-' .. units)
  if outbox then
    event = event .. ',' .. redis.call('XADD', outbox, '*', 'event', 'withdrawn', 'id', id, 'buyer', buyer,
      'quantity', units)
  end
  state = 'held'
end
local callers, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
if any and (state == 'cancelled' or string.find(marks .. ' ', ' -' .. call .. ' ', 1, true)) then
  return {'ok', 1, buyer, quantity, left, stock}
end

local word = call
if string.find(callers .. ' ', ' +' .. call .. ' ', 1, true) then
  call = '+' .. call
end
-- shared other_callers
local others, told = {}, false
for one in string.gmatch(callers, '%S+') do
  if one == call then
    told = true
  else
    others[#others + 1] = one
  end
end
-- end other_callers
if any then
  others, marks = {}, marks .. string.gsub(callers, ' %+?', ' -')
end
call = word
-- shared late_marks
if call ~= '' and not string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
  marks = marks .. ' -' .. call
end
local _, taken_back = string.gsub(marks, ' ', ' ')
if taken_back > 16 then -- so that a record stays short
  marks = string.gsub(marks, ' %S+', '', taken_back - 16)
end
-- end late_marks
local all_back = any or told and #others == 0 and not stays
if state == 'expired' and all_back then -- or a late confirmation could still sell it
  state = 'cancelled'
end
local updated = table.concat({state, buyer, units, finish, event .. marks, unpack(others)}, ' ')
if state ~= 'held' or not all_back then
  if updated ~= record then
    extend(true)
    redis.call('HSET', reservations, id, updated)
  end
  return {'ok', 1, buyer, quantity, left, stock}
end
fail(id, 'cancelled', updated)
extend()
return {'ok', 0, buyer, quantity, left, stock}
