-- Limits that are waited for: whose turn it is. Of the processes whose attempts wait for units of one actor,
-- the one that others have passed by for long takes the turn. The lines of the others wait while it has that.
-- A limit does not depend on it: it only says who asks first.
--
-- KEYS  1 turn  string, the name of the process that has the turn
-- ARGV  1 name  of this process
--       2 ttl   milliseconds for which it takes the turn, or keeps it; 0: it wants none, and gives up its own
-- Returns 1 when another process has the turn, else 0: this one has it if it wants it

local name, ttl = ARGV[1], ARGV[2]
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= name then
  return 1
end
if ttl ~= '0' then
  redis.call('SET', KEYS[1], name, 'PX', ttl)
elseif holder then
  redis.call('DEL', KEYS[1])
end
return 0
