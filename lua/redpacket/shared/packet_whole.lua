-- Refuses what is left of a packet that is lost. Needs packet, shares, grabs, and p, what HMGET says of
-- fields of the packet, the first of which is always there.

if not p[1] and redis.call('EXISTS', shares, grabs) > 0 then
  return redis.error_reply('GATEHOUSE lost: the packet ' .. packet .. ', of which shares or grabs are left')
end
