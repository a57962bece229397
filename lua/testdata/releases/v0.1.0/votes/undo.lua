-- Votes: undoes one call of vote, exactly once. The vote is removed when no other call received a yes for it;
-- a vote that changed another one restores that one. A vote that was retracted or voided meanwhile is left
-- unchanged. One that was changed must not be restored later either: the book gets a mark, by which the undo
-- of that change restores what was there before.
--
-- KEYS  1 voters     hash, as vote writes it
--       2 tally      hash, as vote writes it
--       3 book       hash, as vote writes it
--       4 operations hash, as vote writes it
--       5 audit      stream, as vote writes it; absent: no audit
-- ARGV  1 voter      12 bytes, as given to vote
--       2 call       as given to vote
--       3 void       milliseconds for which a tombstone is kept at least where no vote is left
--       4 name, 5 id, 6 origin  as given to vote
--       7 late       1: the call, or a copy of it, may still arrive; then it finds a tombstone and counts
--                    nothing. 0, absent or empty: it has arrived, once
--       8 field      of the operation
-- Returns 1 when the vote no longer counts, else 0.

local voters, tally, book, operations, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voter, call, void = ARGV[1], ARGV[2], ARGV[3]
local late, field, none = ARGV[7] == '1', ARGV[8], '\0\0\0\0'

local stored = redis.call('HGET', operations, field) or '|'
-- shared vote_words
local form = string.sub(stored, 1, 1)
local length = form == '|' and 1 or form == 'c' and 13 or 9
local head, words = string.sub(stored, 1, length), string.sub(stored, length + 1)
local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
-- end vote_words
if form ~= '|' and (form ~= 'v' and form ~= 'c' or string.sub(stored, 2, 5) ~= string.sub(voter, 1, 4) or
  calls == ' *') then
  return 0 -- a call of this operation that still arrives counts nothing
end

-- Stores the marks alone, for as long as those calls may arrive.
local function bury()
  redis.call('HSET', operations, field, '|' .. marks)
  if redis.call('PTTL', operations) < tonumber(void) then
    redis.call('PEXPIRE', operations, void)
  end
end

if late then
  -- shared late_marks
  if call ~= '' and not string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
    marks = marks .. ' -' .. call
  end
  local _, taken_back = string.gsub(marks, ' ', ' ')
  if taken_back > 16 then -- so that a record stays short
    marks = string.gsub(marks, ' %S+', '', taken_back - 16)
  end
  -- end late_marks
end
if string.find(calls .. ' ', ' +' .. call .. ' ', 1, true) then
  call = '+' .. call
end
local callers = calls
-- shared other_callers
local others, told = {}, false
for one in string.gmatch(callers, '%S+') do
  if one == call then
    told = true
  else
    others[#others + 1] = one
  end
end
-- end other_callers
if #others > 0 or not told then
  local updated = head .. calls .. marks
  if told then
    updated = head .. ' ' .. table.concat(others, ' ') .. marks
  end
  if form == '|' and late then
    bury()
  elseif updated ~= stored and form ~= '|' then
    redis.call('HSET', operations, field, updated)
  end
  return 0
end

local b = redis.call('HMGET', book, ':state', ':audit')
local state, begun = b[1], b[2]
-- shared vote_state
local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
-- end vote_state
-- shared vote_book
if not state and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
-- end vote_book

-- shared vote_audit
-- A stream that has begun and is not there is lost: it is not begun anew, so that its loss is noticed.
local function tell(slot, ...)
  local one, two, three, four = string.byte(slot, 1, 4)
  slot = string.format('%.0f', ((one * 256 + two) * 256 + three) * 256 + four)
  if begun then
    redis.call('XADD', audit, 'NOMKSTREAM', '*', 'slot', slot, ...)
  else
    redis.call('HSET', book, ':audit', '1')
    redis.call('XADD', audit, '*', 'slot', slot, ...)
  end
  redis.call('PEXPIRE', audit, redis.call('PTTL', voters))
end
-- end vote_audit

-- shared vote_look
local one, two, three, four = string.byte(voter, 1, 4)
local hash = ((one * 256 + two) * 256 + three) * 256 + four
local _, exponent = math.frexp(buckets)
local half = 2 ^ (exponent - 1)
local index = hash % (2 * half)
if index >= buckets then
  index = hash % half
end
index = string.format('%d', index) -- a number as text is cheaper than one that redis.call makes a text of
local bucket = redis.call('HGET', voters, index) or ''
local at = string.find(bucket, voter, 1, true)
while at and at % 16 ~= 1 do
  at = string.find(bucket, voter, at + 1, true)
end
at = at or #bucket + 1
local mine, stop = {}, at
while string.sub(bucket, stop, stop + 11) == voter do
  mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
  stop = stop + 16
end
-- end vote_look
local slot, old, changed = string.sub(stored, 6, 9), string.sub(stored, 10, 13), '~' .. voter
if form == 'v' then
  old = none
end
-- shared vote_place
local place
for i, one in ipairs(mine) do
  if one == slot then
    place = i
  end
end
-- end vote_place

-- HDEL goes first: a full Redis accepts it, and then accepts the rest, because the script has written.
redis.call('HDEL', operations, field)
if marks ~= '' then
  bury()
end
-- What this vote replaced may have been taken back since, and what that one had replaced likewise.
while old ~= none do
  local field = changed .. string.sub(old, 4)
  local mark = redis.call('HGET', book, field)
  if not mark or string.sub(mark, 1, 4) ~= old then
    break
  end
  redis.call('HDEL', book, field)
  old = string.sub(mark, 5)
end
if not place then
  for _, one in ipairs(mine) do
    if string.sub(one, 1, 3) ~= string.sub(none, 1, 3) then -- it may have replaced this vote
      redis.call('HSET', book, changed .. string.sub(slot, 4), slot .. old)
      break
    end
  end
  return 0
end
local choice, weight = string.match(redis.call('HGET', book, '#' .. string.sub(slot, 1, 3)), '^(%S*) (%d+)')
local old_choice, old_weight, count = '', '', #mine
if old ~= none then
  old_choice, old_weight =
    string.match(redis.call('HGET', book, '#' .. string.sub(old, 1, 3)), '^(%S*) (%d+)')
end
-- A tally that is lost stays as it is: the records count, and Repair makes it anew. The vote that comes back
-- goes first: it fails on a sum beyond 64 bits.
local whole = true
if old ~= none then
  local one, units = old_choice, old_weight
  -- shared vote_add
  local found = true
  if redis.call('HINCRBY', tally, one, units) == units + 0 then -- a new choice
    found = redis.call('HLEN', tally) > kinds
    if found then
      kinds = kinds + 1
    else
      redis.call('HDEL', tally, one)
    end
  end
  -- end vote_add
  whole = found
end
if whole then
  local one, units = choice, weight
  -- shared vote_take
  if (redis.call('HGET', tally, one) or 0) + 0 >= units + 0 and
    redis.call('HINCRBY', tally, one, '-' .. units) == 0 then
    redis.call('HDEL', tally, one)
    kinds = kinds - 1
  end
  -- end vote_take
end
if old ~= none then
  redis.call('PEXPIRE', tally, redis.call('PTTL', voters)) -- it may be a new key
end
table.remove(mine, place)
if old ~= none then
  table.insert(mine, place, old)
end
-- shared vote_store
if place == count and string.sub(mine[#mine] or '', 4) ~= string.sub(slot, 4) then
  mine[#mine + 1] = '\0\0\0' .. string.sub(slot, 4) -- the last turn is kept: no later vote may reuse it
end
redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
-- end vote_store
if audit then
  tell(slot, 'event', 'undone', 'voter', ARGV[4], 'choice', choice, 'weight', weight, 'id', ARGV[5],
    'origin', ARGV[6], 'former', old_choice, 'was', old_weight)
end
return 1
