-- Votes: replaces the tally of a part of a poll by the sums of its records, unless the part has changed since
-- they were counted. A lost audit stream begins anew with the next event.
--
-- KEYS  1 voters   hash, as vote writes it
--       2 tally    hash, as vote writes it
--       3 book     hash, as vote writes it
--       4 audit    stream, as vote writes it; absent: none is kept
-- ARGV  1 changes  the book's ":changes" when the records were counted
--       2 choice, 3 sum, and so on: the sums of the records
-- Returns 1 when the tally was replaced, 0 when something has changed.

local voters, tally, book, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('HGET', book, ':changes') ~= ARGV[1] then
  return 0
end
-- A full Redis rejects the first of these, before the tally is deleted.
redis.call('HINCRBY', book, ':changes', 1)
redis.call('HSET', book, ':choices', (#ARGV - 1) / 2)
redis.call('DEL', tally)
for i = 2, #ARGV, 2 do
  redis.call('HSET', tally, ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', tally, redis.call('PTTL', voters))
if audit and redis.call('EXISTS', audit) == 0 then
  redis.call('HDEL', book, ':audit')
end
return 1
