-- take takes from the sums of the tally. kinds is how many choices the tally has by the book.
-- needs: tally, kinds
-- gives: take, kinds

-- Takes from the sum of a choice, and reports whether the tally had so much. If not, it stays as it is.
local function take(one, units)
  local sum = redis.call('HINCRBY', tally, one, '-' .. units)
  local had = sum >= 0
  if not had then
    sum = redis.call('HINCRBY', tally, one, units)
  elseif sum == 0 then
    kinds = kinds - 1
  end
  if sum == 0 then
    redis.call('HDEL', tally, one)
  end
  return had
end
