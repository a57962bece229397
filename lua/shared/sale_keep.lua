-- Keeps the keys of a sale. ends is until when they are kept, or 0 where they are to be renewed in any case.
-- needs: now, closes, keep, ends, sale, terms
-- gives: ends

-- All keys end at the same time. It is a little later than the sale needs, so that most changes leave it.
local least = math.max(now, closes) + keep
if least > ends + 0 then
  ends = least + math.floor(keep / 64)
  local ttl = string.format('%.0f', ends - now)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  redis.call('HSET', sale, 'terms', (string.gsub(terms, '%S+$', string.format('%.0f', ends))))
end
