-- Control: puts back what a process knows and Redis has lost. A change that is as late or later stays.
--
-- KEYS  1 root, 2 audit  as in set
-- ARGV  1 channel  on which the processes that follow hear of the change
--       2 who, 3 why  for the audit
--       4 known    the greatest ID that the process knows
--       5 now      milliseconds since 1970; absent or empty: the server's clock
--       6 word     one that no other call has
--       7 field, 8 value, ...  as they were in the root
-- Returns how many it put back

local root, audit, now, put = KEYS[1], KEYS[2], tonumber(ARGV[5]), 0
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
local function inForce(ends)
  return ends == '0' or ends and ends + 0 > now
end
for n = 7, #ARGV, 2 do
  local field, value = ARGV[n], ARGV[n + 1]
  local ends, id, text = string.match(value, '^(%d+) (%d+) (.*)$')
  local old, since = string.match(redis.call('HGET', root, field) or '', '^(%d+) (%d+)')
  if (since or 0) + 0 < id + 0 then
    if put == 0 then
      redis.call('PUBLISH', ARGV[1], field)
    end
    put = put + 1
    redis.call('HSET', root, field, value)
    if inForce(ends) or inForce(old) then
      redis.call('XADD', audit, 'MAXLEN', '~', '1000', '*', 'who', ARGV[2], 'why', ARGV[3], 'what',
        'restore ' .. text, 'path', field, 'until', ends, 'at', string.format('%.0f', now))
    end
  end
end
if put > 0 then
  local last = math.max(string.match(redis.call('HGET', root, '@') or '0', '^%d+'), ARGV[4])
  redis.call('HSET', root, '@', string.format('%.0f ', math.max(now, last + 1)) .. ARGV[6])
  redis.call('PEXPIRE', root, '63244800000')
  redis.call('PEXPIRE', audit, '31622400000')
end
return put
