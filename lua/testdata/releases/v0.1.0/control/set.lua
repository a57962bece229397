-- Control: notes what an operator decides, and drops what is over.
--
-- KEYS  1 root     hash: field -> "until id value". An until of 0 never ends. The greater the id, the later
--                  the change. What was withdrawn is over and has no value. What is over stays for 30 days.
--                  "@" has the greatest id and the word of the last call: together the version of the root,
--                  which no other state has had. The root of a budget has other fields too
--       2 audit    stream: the last 1,000 or so changes, with who, why, what, path and until
-- ARGV  1 field    of the root
--       2 value    empty: withdrawn
--       3 who, 4 why, 5 what, 6 path, 7 until  for the audit
--       8 channel  on which the processes that follow hear of the change
--       9 known    the greatest ID that the process knows
--       10 now     milliseconds since 1970; absent or empty: the server's clock
--       11 word    one that no other call has
-- Returns 1

local root, audit, now = KEYS[1], KEYS[2], tonumber(ARGV[10])
-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
redis.call('PUBLISH', ARGV[8], ARGV[1]) -- first: who may not publish changes nothing
redis.call('XADD', audit, 'MAXLEN', '~', '1000', '*', 'who', ARGV[3], 'why', ARGV[4],
  'what', ARGV[5], 'path', ARGV[6], 'until', ARGV[7], 'at', string.format('%.0f', now))
redis.call('PEXPIRE', audit, '31622400000')
local all = redis.call('HGETALL', root)
for n = 1, #all, 2 do
  local ends = (string.match(all[n + 1], '^(%d+) %d+ ') or 0) + 0
  if ends > 0 and ends + 2592000000 <= now then
    redis.call('HDEL', root, all[n])
  end
end
-- A change is later than all before it, whatever the clock says.
local last = math.max(string.match(redis.call('HGET', root, '@') or '0', '^%d+'), ARGV[9])
local id = string.format('%.0f', math.max(now, last + 1))
local ends = ARGV[2] == '' and string.format('%.0f', now) or ARGV[7]
redis.call('HSET', root, ARGV[1], ends .. ' ' .. id .. ' ' .. ARGV[2], '@', id .. ' ' .. ARGV[11])
redis.call('PEXPIRE', root, '63244800000')
return 1
