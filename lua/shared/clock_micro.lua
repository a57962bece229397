-- Reads the server's clock unless the call gave a moment. Needs and gives now, in microseconds since 1970.

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
