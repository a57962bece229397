-- Red packets: takes the remaining shares out of an expired packet, once. left + grabbed + refunded = total,
-- before and after.
--
-- KEYS  1 packet  hash, as red_packet_create writes it
--       2 shares  list, likewise
--       3 grabs   hash, as red_packet_grab writes it
-- ARGV  1 now     milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, amount}
--       reason  ok, not_ready (no such packet), early (it has not expired)
--       amount  the amount taken out, by this call or an earlier one; else 0

local packet, shares, grabs = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])

local p = redis.call('HMGET', packet, 'total', 'expires', 'refunded')
-- shared packet_whole
if not p[1] and redis.call('EXISTS', shares, grabs) > 0 then
  return redis.error_reply('GATEHOUSE lost: the packet ' .. packet .. ', of which shares or grabs are left')
end
-- end packet_whole
if not p[1] then
  return {'not_ready', 0}
end
local total, expires, refunded = tonumber(p[1]), tonumber(p[2]), tonumber(p[3])
if refunded then
  return {'ok', refunded}
end
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if now < expires then
  return {'early', 0}
end

local left, grabbed = 0, 0
for _, amount in ipairs(redis.call('LRANGE', shares, 0, -1)) do
  left = left + tonumber(amount)
end
for _, amount in ipairs(redis.call('HVALS', grabs)) do
  grabbed = grabbed + tonumber(amount)
end
if left + grabbed ~= total then
  return redis.error_reply('GATEHOUSE lost: shares or grabs of ' .. packet ..
    ': together they are not the total')
end

-- HSET goes first: a full Redis rejects it before anything is written.
redis.call('HSET', packet, 'refunded', string.format('%.0f', left), 'rest', redis.call('LLEN', shares))
redis.call('DEL', shares)
return {'ok', left}
