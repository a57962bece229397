-- Votes: voids one vote from the audit stream, if it is still valid: it no longer counts. A vote can be
-- voided once.
--
-- KEYS  1 voters   hash, as vote writes it
--       2 tally    hash, as vote writes it
--       3 book     hash, as vote writes it
--       4 run      string: the last vote that this run has voided, so that a resend receives the same answer
--       5 audit    stream, as vote writes it
-- ARGV  1 voter    12 bytes, as given to vote
--       2 slot     of the vote, as in its event: the ballot's number * 256 + the turn
--       3 again    1: the voter may vote again; 0: the vote stays used
--       4 dry      1: only report
--       5 event    the vote's event, any text
--       6 name, 7 id, 8 origin  as in its event
-- Returns 1 when this call voids the vote (dry: would void it), 0 when the vote is not valid any more.

local voters, tally, book, run, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voter, again, dry, event = ARGV[1], ARGV[3] == '1', ARGV[4] == '1', ARGV[5]
local most = 256 * 65536 - 1

local function pack(n)
  return string.char(math.floor(n / 16777216), math.floor(n / 65536) % 256, math.floor(n / 256) % 256,
    n % 256)
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
local slot = pack(ARGV[2])
-- shared vote_place
local place
for i, one in ipairs(mine) do
  if one == slot then
    place = i
  end
end
-- end vote_place
local choice, weight, day = string.match(
  redis.call('HGET', book, '#' .. string.sub(slot, 1, 3)) or '', '^(%S*) (%d+)( ?%d*)$')
if not place or weight == '0' then
  if redis.call('GET', run) == event then
    return 1
  end
  return 0
elseif dry then
  return 1
end

-- A vote that is used but does not count has a ballot of weight 0.
local ballot = choice .. ' 0' .. day
local voided = not again and redis.call('HGET', book, '=' .. ballot)
if not again and not voided and ballots >= most then
  return redis.error_reply('GATEHOUSE too many different ballots in ' .. book)
end

-- DEL goes first: a full Redis accepts it, and then accepts the rest, because the script has already written.
redis.call('DEL', run)
redis.call('SET', run, event, 'PX', 60000)
if not again and not voided then
  ballots = ballots + 1
  voided = string.sub(pack(ballots), 2)
  redis.call('HSET', book, '=' .. ballot, voided, '#' .. voided, ballot)
end
local one, units = choice, weight -- a tally that is lost stays as it is: the records count, see Repair
-- shared vote_take
if (redis.call('HGET', tally, one) or 0) + 0 >= units + 0 and
  redis.call('HINCRBY', tally, one, '-' .. units) == 0 then
  redis.call('HDEL', tally, one)
  kinds = kinds - 1
end
-- end vote_take
local count = #mine
if again then
  table.remove(mine, place)
else
  mine[place] = voided .. string.sub(slot, 4)
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
tell(slot, 'event', 'voided', 'voter', ARGV[6], 'choice', choice, 'weight', weight, 'id', ARGV[7],
  'origin', ARGV[8])
return 1
