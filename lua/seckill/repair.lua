-- Seckill: restores a key of a sale that was lost. The caller writes a draft, in as many calls as it takes,
-- and then puts it in the place of what was lost.
--
-- KEYS  1 other    a key of the same sale that is there: what is restored expires with it
--       2 part     that was lost: a hash or a sorted set
--       3 draft    of the part; it expires after ten minutes
-- ARGV  1 kind     hash or zset: field and value, or score and member, follow from the second on, to be added
--                  to the draft; end: puts the draft in place
-- Returns 1, 0 when the part is there: then the draft is dropped; -1 when the other key is not there.

local other, part, draft = KEYS[1], KEYS[2], KEYS[3]
local kind = ARGV[1]

if kind ~= 'end' then
  for i = 2, #ARGV, 2 do
    if kind == 'hash' then
      redis.call('HSET', draft, ARGV[i], ARGV[i + 1])
    else
      redis.call('ZADD', draft, ARGV[i], ARGV[i + 1])
    end
  end
  redis.call('PEXPIRE', draft, '600000')
  return 1
end
local ttl = redis.call('PTTL', other)
if ttl < 0 then
  return -1
elseif redis.call('EXISTS', part) == 1 then
  redis.call('DEL', draft)
  return 0
end
redis.call('RENAME', draft, part)
redis.call('PEXPIRE', part, ttl)
return 1
