-- Reads the counters of a sale and rejects a sale that does not add up. Needs sale and s, the reply of HMGET
-- for 'stock', 'left', 'held', 'sold', 'closes', 'keep', 'ends'.

local stock, left, held, sold = tonumber(s[1]), tonumber(s[2]), tonumber(s[3]), tonumber(s[4])
local closes, keep, ends = tonumber(s[5]), tonumber(s[6]), tonumber(s[7] or 0)
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
