-- Reads the server's clock unless the call gave a moment: milliseconds since 1970.
-- needs: now
-- gives: now

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
