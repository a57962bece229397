-- Reads the counters of a sale and rejects a sale that does not add up. Needs sale and s, the reply of HMGET
-- for 'stock', 'left', 'held', 'sold'.

local stock, left, held, sold = s[1] + 0, s[2] + 0, s[3] + 0, s[4] + 0
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
