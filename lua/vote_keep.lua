-- Votes: keeps a vote for good, because the request of a call that it was counted for has succeeded. No undo
-- removes it any more, and replays of the same operation report that it is kept.
--
-- KEYS  1 operation  string, as vote writes it
-- ARGV  1 voter      12 bytes, as given to vote
--       2 call       as given to vote
-- Returns 1 when the vote is kept, 0 when it was not counted for this call.

local operation, voter, call = KEYS[1], ARGV[1], ARGV[2]

local stored = redis.call('GET', operation)
if not stored or string.sub(stored, 1, 13) ~= 'v' .. voter then
  return 0
end
local callers = string.sub(stored, 22)
if callers == ' *' then
  return 1
elseif not string.find(callers .. ' ', ' ' .. call .. ' ', 1, true) and
  not string.find(callers .. ' ', ' +' .. call .. ' ', 1, true) then
  return 0
end
redis.call('SET', operation, string.sub(stored, 1, 21) .. ' *', 'KEEPTTL')
return 1
