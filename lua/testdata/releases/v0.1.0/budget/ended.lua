-- Budget: ends the periods of nodes that are over, so that an export gives their rows once more, as final.
-- The next attempt would do the same; this is for nodes that nobody uses any more.
--
-- KEYS  1 root, 2 rows, then nodes, as in check
-- ARGV  1 now   microseconds since 1970; absent or empty: the server's clock
--       then the name of each node, as in check
-- Returns how many periods it has ended

local root, rows, now = KEYS[1], KEYS[2], tonumber(ARGV[1])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local sequence, count = (redis.call('HGET', root, '=') or 0) + 0, 0
for i = 3, #KEYS do
  local begins, ends, used, rest = string.match(redis.call('HGET', KEYS[i], 'p') or '',
    '^(%d+) (%d+) (%d+) %S+ %d+ (.*)$')
  if ends and ends * 1000 <= now then
    sequence, count = math.max(sequence + 1, now), count + 1
    local at = string.format('%d', sequence)
    redis.call('HSET', KEYS[i], begins .. ' ' .. ends, used .. ' ' .. at .. ' ' .. rest)
    redis.call('HDEL', KEYS[i], 'p')
    redis.call('ZADD', rows, at, ARGV[i - 1])
  end
end
if count > 0 then
  redis.call('HSET', root, '=', string.format('%d', sequence))
  redis.call('PEXPIRE', root, '63244800000')
  redis.call('PEXPIRE', rows, '63244800000')
end
return count
