-- Reads the room. Where it is missing, it is made: as the process has known it, after which nobody enters
-- until each pass that was given has ended, or anew. An opening that is still to come begins a new room
-- when that of an earlier opening is open, and moves the opening of a room that is not. The room remembers
-- its opening, so processes that know of earlier ones only change nothing. It has a clock of its own, which
-- never runs back.
-- needs: now, room, here, seen, taken, known, opens, draw, interval, quiet_for, FIRST
-- gives: now, base, last, late, front, turn, limit, state, lobby, quiet, entered, ahead, text, seed, of
-- gives: drawn, high, back, whole, same

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
