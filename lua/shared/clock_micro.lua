-- Reads the server's clock unless the call gave a moment: microseconds since 1970.
-- needs: now
-- gives: now

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
