-- Gives holds back. All three functions change left.
-- needs: reservations, per_buyer, outbox, holds, buyers, sale, left
-- gives: remember, fail, left, expire

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
