-- Waiting room: gives numbers to one or several visitors of one moment. Where nobody waits and there is room,
-- they are called at once.
--
-- A number is the moment at which the room was made (base), and an index in it, from 65,536 on. Indices below
-- are for second holders of a number (see enter). A visitor's place in the line is the index; with a draw,
-- those who came before the opening have another one of theirs, which is drawn.
--
-- KEYS  1 room    hash: base (when the room was made) and last (the last number), opens and draw (of the
--                 opening), the room's clock (at, ahead, back: when it was asked again after an interval
--                 without a call), front (no holder of a lower place is here), high (the highest place that
--                 was called), turn (when the interval began), limit (the operator's capacity), state, text,
--                 lobby (how many came before the opening), quiet (nobody enters before), entered, missed
--                 (called, and did not come), seed, count (see tick), late and moves (how many places in
--                 front were given to second holders of numbers), moved:PLACE:ID (which one)
--       2 here    bitmap by place: its holder was seen in this or the last interval, and waits
--       3 seen    bitmap: in this interval
--       4 taken   string, a byte by place: 0 free, 255 called, else the mark of who has used it, and 127 more
--                 when they have given it back
--       5 inside  sorted set "place:id" -> when the pass ends, unless it is renewed
--       6 passes  hash "place:id" -> when the pass ends in any case
--       7 called  sorted set place -> until when its holder may enter
--       8 left    sorted set "place:id" -> until when a pass or a place that was given back is remembered
-- ARGV  1 now       milliseconds since 1970; empty: the server's clock
--       2 capacity  how many are inside and called at most, unless the operator has set another number
--       3 pass, 4 idle, 5 grace  milliseconds: the longest stay, the longest one without a request, and how
--                   long a called place is kept
--       6 interval  milliseconds of presence
--       7 keep      milliseconds for which the room is kept after the last call
--       8 opens     of the opening, milliseconds since 1970; 0: open
--       9 draw      1: the places of those who have come before the opening are drawn
--       10 known    the room as the process knows it, for a room that is lost: base, last, lobby, seed,
--                   state, limit, text; a base of 0: not at all. Then the seed of a new room
--       then an argument for each visitor, whatever it is
-- Returns {now, base, index, called, lobby} of the first visitor; the others have the next indices
--       now      the room's clock, in milliseconds
--       called   how many of them are called
--       lobby    how many came before the opening; -1: it is not open yet

local room, here, seen, taken = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local inside, passes, called, left = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local now, capacity, pass, idle = tonumber(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local grace, interval, keep = ARGV[5] + 0, ARGV[6] + 0, ARGV[7]
local opens, draw, known = ARGV[8] + 0, ARGV[9] == '1', ARGV[10]
local quiet_for, FIRST = math.max(idle, grace), 65536 -- FIRST: the place of the first arrival
local visitors = #ARGV - 10
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- shared room
local function whole(n)
  return string.format('%.0f', n)
end
local f = redis.call('HMGET', room, 'base', 'at', 'ahead', 'last', 'late', 'front', 'turn', 'limit', 'state',
  'lobby', 'quiet', 'entered', 'text', 'seed', 'opens', 'draw', 'back', 'high')
local base, ahead, last, late = (f[1] or 0) + 0, (f[3] or 0) + 0, (f[4] or 0) + 0, (f[5] or 0) + 0
local front, turn, limit, state = (f[6] or 0) + 0, (f[7] or 0) + 0, f[8] or '', f[9] or ''
local lobby, quiet, entered = f[10] or '', (f[11] or 0) + 0, (f[12] or 0) + 0
local text, seed, of, drawn = f[13] or '', f[14] or '', (f[15] or 0) + 0, f[16] == '1'
local back, high = (f[17] or 0) + 0, (f[18] or 0) + 0
now = now + ahead
if f[2] and now < f[2] + 0 then -- the clock was set back
  ahead = ahead + f[2] - now
  now = f[2] + 0
end
if f[2] and now > f[2] + interval then -- nobody could ask
  back = now
end
local was = string.match(known, '^%d+') + 0
local lost = base == 0 or opens > of or opens == of and was < base and now < base + interval
if lost and was > 0 and was ~= base then -- some numbers may have been given that the process does not know
  if base > 0 then
    redis.call('DEL', unpack(KEYS))
  end
  last, lobby, seed, state, limit, text = string.match(known, '^%d+ (%d+) (%d*) (%w*) (%a+) (%d*) (%S*) ')
  base, last, late, front, high, turn, entered, of, drawn = was, last + 100000, 0, 0, 0, 0, 0, opens, draw
  quiet, back = now + quiet_for, now
elseif base == 0 or opens > now and now >= of and opens > of then
  redis.call('DEL', unpack(KEYS))
  base, seed, state = math.max(now, base + 1), string.match(known, '%w+$'), 'open'
  last, late, front, high, turn, entered, quiet, back = FIRST - 1, 0, 0, 0, 0, 0, 0, now
  limit, lobby, text, of, drawn = '', '', '', opens, draw
elseif opens > of or opens == of and lobby == '' and draw then
  of, drawn = opens, draw
end
if lobby == '' and now >= of then
  lobby = whole(drawn and last - FIRST + 1 or 0)
  if last >= FIRST then -- those who have waited have the time to say that they are here
    quiet = math.max(quiet, now + interval)
  end
  if lobby ~= '0' then -- numbers have other places from now on
    redis.call('DEL', here, seen, taken)
  end
end
if now >= turn + interval then -- who was seen in the last interval is still here
  if now < turn + 2 * interval and redis.call('EXISTS', seen) == 1 then
    redis.call('RENAME', seen, here)
  else
    redis.call('DEL', here, seen)
  end
  turn = now
end
local same = was == base -- the process knows this room
-- end room
-- shared leavers
local over = redis.call('ZRANGEBYSCORE', inside, '-inf', now, 'LIMIT', '0', '500')
if #over > 0 then
  redis.call('ZREM', inside, unpack(over))
  redis.call('HDEL', passes, unpack(over))
end
over = redis.call('ZRANGEBYSCORE', called, '-inf', now, 'LIMIT', '0', '500')
if #over > 0 then
  redis.call('ZREM', called, unpack(over))
  redis.call('HINCRBY', room, 'missed', #over)
  for _, place in ipairs(over) do -- who comes back later is the next
    redis.call('SETRANGE', taken, place, '\0')
  end
end
local free = (limit ~= '' and limit or capacity) - redis.call('ZCARD', inside) - redis.call('ZCARD', called)
-- end leavers
-- shared present
local function present(place)
  local mark = redis.call('GETRANGE', taken, place, place)
  if mark ~= '' and mark ~= '\0' then
    return mark ~= '\255'
  end
  if redis.call('SETBIT', seen, place, '1') == 0 then
    redis.call('SETBIT', here, place, '1')
  end
  front = math.min(front, place)
end
local function first()
  local place = redis.call('BITPOS', here, '1', math.floor(front / 8))
  return place >= 0 and place or nil
end
-- end present
-- shared call_one
local function call_one(place)
  redis.call('SETBIT', here, place, '0')
  redis.call('SETBIT', seen, place, '0')
  redis.call('SETRANGE', taken, place, '\255')
  redis.call('ZADD', called, now + grace, place)
  high = math.max(high, place)
end
-- end call_one

local index, soon = last + 1, 0
last = last + visitors
if state == 'open' and lobby ~= '' and now >= quiet and not first() then
  soon = math.max(math.min(free, visitors), 0)
end
for place = index, last do
  if place < index + soon then
    call_one(place)
  else
    present(place)
  end
end
-- shared save
redis.call('HSET', room, 'base', whole(base), 'at', whole(now), 'ahead', whole(ahead), 'last', whole(last),
  'late', whole(late), 'front', whole(front), 'turn', whole(turn), 'limit', limit, 'state', state,
  'lobby', lobby, 'quiet', whole(quiet), 'entered', whole(entered), 'text', text, 'seed', seed,
  'opens', whole(of), 'draw', drawn and '1' or '0', 'back', whole(back), 'high', whole(high))
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, keep)
end
-- end save
return {now, base, index, soon, lobby == '' and -1 or lobby + 0}
