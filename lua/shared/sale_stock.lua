-- Reads the counters of a sale and rejects a sale that does not add up. s is what HMGET says of stock, left,
-- held and sold.
-- needs: s, sale
-- gives: stock, left, held, sold
-- returns: yes

local stock, left, held, sold = s[1] + 0, s[2] + 0, s[3] + 0, s[4] + 0
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
