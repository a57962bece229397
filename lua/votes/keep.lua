-- Votes: keeps a vote for good, because the request of a call that it was counted for has succeeded. No undo
-- removes it any more, and replays of the same operation report that it is kept.
--
-- KEYS  1 operations hash, as vote writes it
-- ARGV  1 voter      12 bytes, as given to vote
--       2 call       as given to vote
--       3 field      of the operation
-- Returns 1 when the vote is kept, 0 when it was not counted for this call.

local operations, voter, call, field = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('HGET', operations, field)
if not stored then
  return 0
end
-- shared vote_words
local form = string.sub(stored, 1, 1)
local length = form == '|' and 1 or form == 'c' and 13 or 9
local head, words = string.sub(stored, 1, length), string.sub(stored, length + 1)
local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
-- end vote_words
if form ~= 'v' and form ~= 'c' or string.sub(stored, 2, 5) ~= string.sub(voter, 1, 4) then
  return 0
elseif words == ' *' then
  return 1
elseif not string.find(calls .. ' ', ' ' .. call .. ' ', 1, true) and
  not string.find(calls .. ' ', ' +' .. call .. ' ', 1, true) then
  return 0
end
redis.call('HSET', operations, field, head .. ' *')
return 1
