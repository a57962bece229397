-- Control: reads what operators have decided, unless the process knows it.
--
-- KEYS  1 root   as in set
--       2 audit  as in set
-- ARGV  1 known  the version that the process has read; empty: it knows that there is none
--       2 now    milliseconds since 1970; absent or empty: the server's clock
-- Returns now, or {now, field, value, ...} where the root has another version

local root, now = KEYS[1], tonumber(ARGV[2])
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if (redis.call('HGET', root, '@') or '') == ARGV[1] then
  return now
end
local all = redis.call('HGETALL', root)
table.insert(all, 1, now)
redis.call('PEXPIRE', root, '63244800000')
redis.call('PEXPIRE', KEYS[2], '31622400000')
return all
