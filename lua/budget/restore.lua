-- Budget: notes what a node had used in a period before its count was lost, as a bill knows it. The same
-- again changes nothing.
--
-- KEYS  1 root, 2 rows, 3 node  as in check
--       4 audit   stream: the last 1,000 or so changes
-- ARGV  1 name    of the node
--       2 begins, 3 ends  of the period, milliseconds
--       4 used    units before the count that is in Redis
--       5 keep    as in check
--       6 who, 7 why, 8 path  for the audit
--       9 moment  in the period, milliseconds
--       10 now    microseconds since 1970; absent or empty: the server's clock
-- Returns the units that count in the period now; -1: the period has not begun, or is not kept any more

local root, rows, node, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local restored, keep, moment, now = ARGV[4] + 0, ARGV[5] + 0, ARGV[9] + 0, tonumber(ARGV[10])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local milli = math.floor(now / 1000)
local sequence = math.max((redis.call('HGET', root, '=') or 0) + 1, now)
local at = string.format('%d', sequence)

-- The period in force is the one of its moments, whatever the plan says. The count is that in force, or an
-- ended one.
local p = redis.call('HGET', node, 'p')
local began, over, count, told, rest = string.match(p or '', '^(%d+) (%d+) (%d+) (%S+) %d+ (.*)$')
local inForce = p and (began + 0 <= moment and moment < over + 0 or began == ARGV[2] and over == ARGV[3])
local begins, ends = inForce and began or ARGV[2], inForce and over or ARGV[3]
local field = begins .. ' ' .. ends
if begins + 0 > milli or ends + keep <= milli then
  return -1
elseif p and not inForce and over + 0 <= milli and begins + 0 >= over + 0 then
  redis.call('HSET', node, began .. ' ' .. over, string.format('%s %s %s', count, at, rest))
  p = nil
end
local state = inForce and count .. ' 0 ' .. rest or redis.call('HGET', node, field) or '0 0 ' .. at .. ' 0'
local used, first, had = string.match(state, '^(%d+) %d+ (%d+) (%d+)$')
used = math.max(used - had, 0) + restored
if inForce or not p then
  redis.call('HSET', node, 'p', string.format('%s %d %s %s %s %d', field, used, inForce and told or '0', at,
    first, restored))
  redis.call('HDEL', node, field)
else
  redis.call('HSET', node, field, string.format('%d %s %s %d', used, at, first, restored))
end
if redis.call('PTTL', node) < ends + keep - milli then
  redis.call('PEXPIRE', node, ends + keep - milli)
end
redis.call('HSET', root, '=', at)
redis.call('ZADD', rows, at, ARGV[1])
redis.call('PEXPIRE', root, '63244800000')
redis.call('PEXPIRE', rows, '63244800000')
redis.call('XADD', audit, 'MAXLEN', '~', '1000', '*', 'who', ARGV[6], 'why', ARGV[7], 'what',
  'restore ' .. ARGV[4] .. ' used', 'path', ARGV[8], 'until', '0', 'at', string.format('%d', milli))
redis.call('PEXPIRE', audit, '31622400000')
return used
