-- Reads how many permits are held, whose lease is the first to end, and when: whose is a holder, or nil. over
-- says that there are permits whose lease is over.
-- needs: permits, keep, now
-- gives: held, whose, ends, over

local read = redis.call('ZRANGE', permits, keep and '1' or '0', '1', 'WITHSCORES')
local whose, ends = read[#read - 1], tonumber(read[#read] or 0)
local held = keep and #read / 2 or 0 - (read[2] or 0)
local over = whose and ends <= now
if over then
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, now)) do
    held = held - string.match(holder, '^%d+')
  end
  read = redis.call('ZRANGEBYSCORE', permits, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  whose, ends = read[1], tonumber(read[2] or 0)
end
