-- Places: takes a place for a member, once. A refused attempt writes nothing.
--
-- KEYS  1 places  hash, member -> the call that took the place
--       2 void    string: exists if this call was undone before it arrived
-- ARGV  1 member  encoded text
--       2 call    one word that names this call; it is the same when go-redis sends the call again
--       3 max     places
--       4 keep    milliseconds that the places are kept after the last one was taken
-- Returns {reason, left}
--       reason    ok, duplicate (the member has a place), full, gone (undone before it arrived)
--       left      places left after this call

local places, void = KEYS[1], KEYS[2]
local member, call, max, keep = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local left = math.max(max - redis.call('HLEN', places), 0)
local holder = redis.call('HGET', places, member)
if holder == call then
  return {'ok', left} -- the reply to the first sending was lost
elseif holder then
  return {'duplicate', left}
elseif redis.call('EXISTS', void) == 1 then
  return {'gone', left}
elseif left == 0 then
  return {'full', 0}
end
redis.call('HSET', places, member, call)
redis.call('PEXPIRE', places, keep)
return {'ok', left - 1}
