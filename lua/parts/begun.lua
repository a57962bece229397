-- Parts of a poll: returns whether a part has begun, or stores that it has. So the loss of all keys of a part
-- is noticed.
--
-- KEYS  1 voters   hash, of the poll, as number writes it
-- ARGV  1 part     its number
--       2 closes   milliseconds since 1970; 0: never
--       3 keep     milliseconds that the part is kept from now, or from the closing, whichever is later
--       4 begun    1: store that the part is there and is kept that long; 0: only read
--       5 now      milliseconds since 1970; absent or empty: the server's clock
--       6 parts    the number of parts that the caller knows; 0, absent or empty: any
-- Returns {state}
--       state      known (the part has begun), stale (it has begun, and may be kept for longer now), none (it
--                  has not begun, or has expired), root (the poll has no number of parts, or another one)

local voters, field, closes, keep = KEYS[1], '@' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local begun, now, parts = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6]) or 0

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local b = redis.call('HMGET', voters, ':parts', field)
local ends, kept = math.max(now, closes) + keep, tonumber(b[2] or 0)
if not b[1] or parts > 0 and tonumber(b[1]) ~= parts then
  return {'root'}
elseif begun and ends > kept then
  redis.call('HSET', voters, field, string.format('%.0f', ends))
  return {'known'}
elseif kept <= now then
  return {'none'}
elseif kept < ends - keep / 64 then
  return {'stale'}
end
return {'known'}
