-- Votes: takes back the vote that one call of vote recorded, exactly once.
--
-- KEYS  1 voters     hash, as vote writes it
--       2 tally      hash, as vote writes it
--       3 operation  string, the stored answer to the operation ID
-- ARGV  1 voter, 2 choice, 3 weight, 4 call   as they were given to vote
-- Returns 1 when the vote was taken back, 0 when that call has no vote (any more).

local voters, tally, operation = KEYS[1], KEYS[2], KEYS[3]
local voter, choice, weight, call = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('GET', operation) ~= voter .. ' ' .. choice .. ' ' .. weight .. ' ' .. call then
  return 0
end

local rest, had = {}, false
for one, units in string.gmatch(redis.call('HGET', voters, voter) or '', '([^ ]*)=(%d+)') do
  if one == choice then
    had = true
  else
    rest[#rest + 1] = one .. '=' .. units
  end
end
if not had then
  return 0
end

if redis.call('HINCRBY', tally, choice, '-' .. weight) <= 0 then
  redis.call('HDEL', tally, choice)
end
if #rest > 0 then
  redis.call('HSET', voters, voter, table.concat(rest, ' '))
else
  redis.call('HDEL', voters, voter)
end
redis.call('DEL', operation)
return 1
