-- Gives all keys the same new TTL. Needs keep and closes, in milliseconds, and now. Gives ttl.

local ttl = keep + math.max(closes - now, 0)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
