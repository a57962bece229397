-- Refuses what is left of a packet that is lost. p is what HMGET says of fields of the packet, the first of
-- which is always there.
-- needs: p, shares, grabs, packet
-- returns: yes

if not p[1] and redis.call('EXISTS', shares, grabs) > 0 then
  return redis.error_reply('GATEHOUSE lost: the packet ' .. packet .. ', of which shares or grabs are left')
end
