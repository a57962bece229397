-- Counts the permits that are held: those that are stored, but for those whose lease is over.
-- needs: permits, now
-- gives: held

local held = 0 - tonumber(redis.call('ZSCORE', permits, '') or 0)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', permits, 0, now)) do
  held = held - string.match(member, '^%d+')
end
