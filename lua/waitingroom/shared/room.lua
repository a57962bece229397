-- Reads the room, and makes one where it is missing: anew, or as the process has known it, after which nobody
-- enters until each pass that was given has ended. The room has a clock of its own, which never runs back.
-- needs: now, room, here, seen, taken, inside, passes, called, left, known
-- needs: opens, draw, interval, quiet_for, FIRST
-- gives: now, base, last, late, front, high, turn, limit, state, lobby, quiet, entered, ahead, text, seed

local f = redis.call('HMGET', room, 'base', 'at', 'ahead', 'last', 'late', 'front', 'high', 'turn', 'limit',
  'state', 'lobby', 'quiet', 'entered', 'text', 'seed')
local base, ahead, last, late = f[1], (f[3] or 0) + 0, (f[4] or FIRST - 1) + 0, (f[5] or 0) + 0
local front, high, turn = (f[6] or 0) + 0, (f[7] or 0) + 0, (f[8] or 0) + 0
local limit, state, lobby, quiet = f[9] or '', f[10] or 'open', f[11] or '', (f[12] or 0) + 0
local entered, text, seed = (f[13] or 0) + 0, f[14] or '', f[15] or ''
now = now + ahead
if f[2] and now < f[2] + 0 then -- the clock was set back
  ahead = ahead + f[2] - now
  now = f[2] + 0
end
if not base then
  base, last, lobby, seed, state, limit, text = string.match(known,
    '^(%d+) (%d+) (%d*) (%w*) (%a+) (%d*) (%S*)$')
  last = last + 0
  if base == '0' then
    base = string.format('%.0f', math.floor(now / 1000))
    redis.call('DEL', here, seen, taken, inside, passes, called, left)
  else -- any number may have been called, and some may have been given that the process does not know
    last = last + 100000
    high, quiet = last, now + quiet_for
  end
end
if lobby == '' and now >= opens then
  lobby = string.format('%.0f', draw and last - FIRST + 1 or 0)
  if lobby ~= '0' then -- numbers have other places from now on, and all may say that they are here
    redis.call('DEL', here, seen)
    quiet = math.max(quiet, now + interval)
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
