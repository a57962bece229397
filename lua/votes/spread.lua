-- Votes: returns the number of parts of a poll, or lets one part of it begin. The first caller decides it, if
-- the poll is open.
--
-- KEYS  1 voters, 2 tally, 3 book, as vote has them, of the poll's first part, or of the part that begins
--       4 audit    stream, as vote writes it; absent: no audit
-- ARGV  1 parts    how many the caller wants
--       2 opens    milliseconds since 1970; 0: open already
--       3 closes   milliseconds since 1970; 0: never
--       4 keep     milliseconds that the records are kept after the last vote or the closing, whichever is
--                  later
--       5 decide   1: decide, if nothing is known; 0: only read
--       6 now      milliseconds since 1970; absent or empty: the server's clock
-- Returns {parts, state}
--       state      1: known; 0: the poll is not open and nothing is known; 2: it is open and nothing is
--                  known, and this call only reads

local voters, tally, book, audit, parts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local opens, closes, keep, decide = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local now = tonumber(ARGV[6])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local b = redis.call('HMGET', book, ':parts', ':state')
-- shared vote_book
if not b[1] and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
-- end vote_book
local stored = b[1]
if now < opens or (closes > 0 and now >= closes) then
  return {tonumber(stored or parts), stored and 1 or 0}
elseif not stored and not decide then
  return {tonumber(parts), 2}
elseif not stored then
  redis.call('HSET', book, ':parts', parts)
end
-- The caller remembers the answer for a while, and may vote in another part meanwhile. So the answer has to
-- outlive those votes, and must not shorten what vote has set.
keep = math.max(keep, tonumber(string.match(b[2] or '', '%d+$') or 0) - math.max(closes, now))
local ttl = keep + math.max(closes - now, 0)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
return {tonumber(stored or parts), 1}
