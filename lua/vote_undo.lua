-- Votes: takes back what one call of vote was told, exactly once. When no other call was told of the same vote, it counts no more.
--
-- KEYS  1 voters     hash, as vote writes it
--       2 tally      hash, as vote writes it
--       3 operation  string, as vote writes it
-- ARGV  1 voter, 2 choice, 3 weight, 4 call   as they were given to vote
--       5 void       milliseconds; if the call has not come yet, it shall not count when it comes within this time; 0: never mind
-- Returns 1 when the vote counts no more, else 0.

local voters, tally, operation = KEYS[1], KEYS[2], KEYS[3]
local voter, choice, weight, call, void = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local attempt = voter .. ' ' .. choice .. ' ' .. weight
local stored = redis.call('GET', operation)
if not stored then
  if void ~= '0' then
    redis.call('SET', operation, '| ' .. call, 'PX', void)
  end
  return 0
end
if string.sub(stored, 1, #attempt + 1) ~= attempt .. ' ' then
  return 0
end
local others, told = {}, false
for one in string.gmatch(string.sub(stored, #attempt + 2), '%S+') do
  if one == call then
    told = true
  else
    others[#others + 1] = one
  end
end
if not told then
  return 0
end
if #others > 0 then
  redis.call('SET', operation, attempt .. ' ' .. table.concat(others, ' '), 'KEEPTTL')
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

-- DEL goes first: a full Redis lets it pass, and then the rest as well, since the script has written.
redis.call('DEL', operation)
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
return 1
