-- Parts of a poll: returns the number of parts of a poll, or lets the poll, or one of its parts, begin. The
-- first caller decides the number, if the poll is open. A poll of one part is as votes/vote makes it, with a
-- ":state" in its book. A poll of several parts has their number where the voters would be, and no book: so
-- the scripts of votes, which should not run on it, say that the book is lost.
--
-- KEYS  1 voters   as votes/vote writes it, of the poll or the part; of a poll of several parts a hash,
--                  ":parts" -> their number; "@" and the number of a part -> until when that part is kept at
--                  least, in milliseconds since 1970
--       2 tally
--       3 book     as votes/vote writes it; of a part with ":parts" -> their number, so that nobody votes in
--                  a part by a number that was the poll's in an earlier life
--       4 audit    stream, as votes/vote writes it; absent: no audit
-- ARGV  1 parts    how many the caller wants; of a part, those that its poll has
--       2 opens    milliseconds since 1970; 0: open already
--       3 closes   milliseconds since 1970; 0: never
--       4 keep     milliseconds that the keys are kept from now, or from the closing, whichever is later
--       5 decide   1: decide, if nothing is known; 0: only read
--       6 now      milliseconds since 1970; absent or empty: the server's clock
--       7 part     1: the keys are those of a part; 0: of the poll
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

local stored
if redis.call('HEXISTS', book, ':state') == 1 then
  stored = '1'
else
  stored = redis.call('HGET', voters, ':parts')
end
if not stored and redis.call('EXISTS', voters, tally, book, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
elseif now < opens or (closes > 0 and now >= closes) then
  return {tonumber(stored or parts), stored and 1 or 0}
elseif not stored and not decide then
  return {tonumber(parts), 2}
elseif not stored and ARGV[7] == '1' then
  redis.call('HSET', book, ':state', '0 0 1 0 0 0', ':parts', parts)
elseif not stored and parts == '1' then
  redis.call('HSET', book, ':state', '0 0 1 0 0 0')
elseif not stored then
  redis.call('HSET', voters, ':parts', parts)
end
-- The caller remembers the answer for a while, so the keys have to outlive the votes that it casts meanwhile.
local ttl = math.max(closes - now, 0) + keep
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, string.format('%.0f', ttl))
  end
end
return {tonumber(stored or parts), 1}
