-- Red packets: reads a whole packet in one step, so that it adds up even while users grab.
--
-- KEYS  1 packet  hash, as red_packet_create writes it
--       2 shares  list, likewise
--       3 grabs   hash, as red_packet_grab writes it
-- ARGV  none
-- Returns {total, min, expires, count, refunded, shares, grabs}
--       total     0 when there is no such packet
--       refunded  0 before the refund
--       shares    {amount, ...}, the next one first
--       grabs     {user, amount, user, amount, ...}

local packet, shares, grabs = KEYS[1], KEYS[2], KEYS[3]

local p = redis.call('HMGET', packet, 'total', 'min', 'expires', 'count', 'refunded')
-- shared packet_whole
if not p[1] and redis.call('EXISTS', shares, grabs) > 0 then
  return redis.error_reply('GATEHOUSE lost: the packet ' .. packet .. ', of which shares or grabs are left')
end
-- end packet_whole
if not p[1] then
  return {0, 0, 0, 0, 0, {}, {}}
end
return {
  tonumber(p[1]), tonumber(p[2]), tonumber(p[3]), tonumber(p[4]), tonumber(p[5] or 0),
  redis.call('LRANGE', shares, 0, -1), redis.call('HGETALL', grabs),
}
