-- Lets all keys live on together. Needs keep and closes, milliseconds, and now. Gives ttl.

local ttl = keep + math.max(closes - now, 0)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ttl)
end
