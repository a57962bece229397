-- Votes: returns whether a part of a poll has begun, as the poll's first part knows, or stores that it has.
-- So the loss of all keys of a part is noticed.
--
-- KEYS  1 book     hash, as vote writes it, of the poll's first part; "@" and the number of another part ->
--                  until when that part is kept at least, in milliseconds since 1970
-- ARGV  1 part     1 or more
--       2 closes   milliseconds since 1970; 0: never
--       3 keep     milliseconds that the records are kept after the last vote or the closing, whichever is
--                  later
--       4 begun    1: store that the part is there and is kept that long; 0: only read
--       5 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {state}
--       state      known (the part has begun), stale (it has begun, and may be kept for longer now), none (it
--                  has not begun, or has expired), root (the first part is not there)

local book, field, closes, keep = KEYS[1], '@' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local begun, now = ARGV[4] == '1', tonumber(ARGV[5])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local b = redis.call('HMGET', book, ':parts', field)
local ends, kept = math.max(now, closes) + keep, tonumber(b[2] or 0)
if not b[1] then
  return {'root'}
elseif begun and ends > kept then
  redis.call('HSET', book, field, string.format('%.0f', ends))
  return {'known'}
elseif kept <= now then
  return {'none'}
elseif kept < ends - keep / 64 then
  return {'stale'}
end
return {'known'}
