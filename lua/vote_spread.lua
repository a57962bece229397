-- Votes: returns the number of parts of a poll. The first caller decides it, if the poll is open.
--
-- KEYS  1 voters, 2 tally, 3 book, as vote has them, of the poll's first part
--       4 audit    stream, as vote writes it; absent: no audit
-- ARGV  1 parts    the number that the caller asks for
--       2 opens    milliseconds since 1970; 0: already open
--       3 closes   milliseconds since 1970; 0: never
--       4 keep     milliseconds for which the records are kept after the last vote or the closing, whichever
--                  is later
--       5 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {parts, stored}
--       stored     0 when the poll is not open and nothing is decided: nothing was written

local voters, tally, book, audit, parts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local opens, closes, keep, now = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local b = redis.call('HMGET', book, ':parts')
-- shared vote_book
if not b[1] and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
-- end vote_book
local stored = b[1]
if now < opens or (closes > 0 and now >= closes) then
  return {tonumber(stored or parts), stored and 1 or 0}
end
if not stored then
  redis.call('HSET', book, ':parts', parts)
end
-- A caller may vote in another part as long as it remembers the answer; the answer has to outlive those
-- votes.
-- shared keep_keys
local ttl = keep + math.max(closes - now, 0)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
-- end keep_keys
return {tonumber(stored or parts), 1}
