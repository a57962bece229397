-- stored_bytes reads a counter: a hash of moment -> the bytes that leave the counter then.
-- needs: now
-- gives: stored_bytes

-- stored_bytes returns the bytes that are still counted, their moments in order, the bytes of each moment,
-- and the fields whose moment has passed.
local function stored_bytes(counter)
  local total, moments, bytes, over = 0, {}, {}, {}
  local all = redis.call('HGETALL', counter)
  for i = 1, #all, 2 do
    local moment = tonumber(all[i])
    if moment > now then
      bytes[moment] = tonumber(all[i + 1])
      total = total + bytes[moment]
      moments[#moments + 1] = moment
    else
      over[#over + 1] = all[i]
    end
  end
  table.sort(moments)
  return total, moments, bytes, over
end
