-- Places: gives back the place that one call took, once. If that call arrives later, it takes nothing.
--
-- KEYS  1 places  hash, as take writes it
--       2 void    string, as take reads it
-- ARGV  1 member, 2 call   the same as for take
--       3 within  milliseconds in which the call may still arrive
-- Returns 1 when a place was given back, else 0.

local places, void = KEYS[1], KEYS[2]
local member, call, within = ARGV[1], ARGV[2], ARGV[3]

local freed = 0
if redis.call('HGET', places, member) == call then
  redis.call('HDEL', places, member)
  freed = 1
end
redis.call('SET', void, '1', 'PX', within)
return freed
