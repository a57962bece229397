-- Votes: retracts a voter's newest vote for a choice, at the voter's own request, and updates the tally in
-- the same step. It writes nothing when there is no such vote.
--
-- KEYS  1 voters     hash, as vote writes it
--       2 tally      hash, as vote writes it
--       3 book       hash, as vote writes it
--       4 operations hash, as vote writes it: "r", the first 4 bytes of the voter, the last 4 bytes of the
--                    retracted record, and the call that received this answer
--       5 audit      stream, as vote writes it; absent: no audit
-- ARGV  1 voter      12 bytes, as given to vote
--       2 choice     encoded text, as given to vote
--       3 closes     milliseconds since 1970; 0: never
--       4 remember   milliseconds for which the stored answer is kept at least; 0: as long as the records
--       5 call       one word that names this call, so that a resend after a lost reply is no replay
--       6 field      of the operation
--       7 name, 8 id, 9 origin  for the audit stream: voter, operation and origin of the request, encoded
--       10 now       milliseconds since 1970; absent or empty: the server's clock
--       11 parts     as given to vote; 0: of a poll that has not begun, as far as the caller knows
-- Returns {reason, replayed, cast, number, choices}
--       reason    ok, conflict, closed, gone (there is no such vote)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       cast      votes used by the voter
--       number    ok: the retracted weight; else 0
--       choices   of the voter's valid votes, the newest last, after this call

local voters, tally, book, operations, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voter, choice, closes, remember = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local call, field, now = ARGV[5], ARGV[6], tonumber(ARGV[10])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local b = redis.call('HMGET', book, ':state', ':audit', ':parts')
local state, begun, parts = b[1], b[2], ARGV[11] or ''
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
if state and parts ~= '' and b[3] ~= parts then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ' is of another number of parts')
end

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
-- shared vote_records
if slots > 0 and bucket == '' and redis.call('HEXISTS', voters, index) == 0 then
  return redis.error_reply('GATEHOUSE lost: records of ' .. voters .. ': who has voted is unknown')
end
-- end vote_records
local cast, choices, place, weight = 0, {}, nil, 0
for i, slot in ipairs(mine) do
  local text = redis.call('HGET', book, '#' .. string.sub(slot, 1, 3))
  if text then -- else it was undone
    local one, units = string.match(text, '^(%S*) (%d+)')
    cast = cast + 1
    if units ~= '0' then
      choices[#choices + 1] = one
      if one == choice then
        place, weight = i, units
      end
    end
  end
end

local stored = redis.call('HGET', operations, field)
if stored and string.sub(stored, 1, 1) ~= '|' then
  local text = redis.call('HGET', book, '#' .. string.sub(stored, 6, 8)) or ''
  local one, units = string.match(text, '^(%S*) (%d+)')
  if string.sub(stored, 1, 5) ~= 'r' .. string.sub(voter, 1, 4) or one ~= choice then
    return {'conflict', 0, cast, 0, {}}
  end
  local calls = string.sub(stored, 10)
  if string.find(calls .. ' ', ' ' .. call .. ' ', 1, true) then
    return {'ok', 0, cast, tonumber(units), choices}
  end
  return {'ok', 1, cast, tonumber(units), choices}
end
if closes > 0 and now >= closes then
  return {'closed', 0, cast, 0, choices}
elseif not state and parts ~= '' and parts ~= '0' then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
elseif not place then
  return {'gone', 0, cast, 0, choices}
end

-- HDEL goes first, although there may be nothing to delete: a full Redis accepts it, and then accepts the
-- rest, because the script has already written.
redis.call('HDEL', operations, field)
local one, units = choice, weight -- a tally that is lost stays as it is: the records count, see Repair
-- shared vote_take
if (redis.call('HGET', tally, one) or 0) + 0 >= units + 0 and
  redis.call('HINCRBY', tally, one, '-' .. units) == 0 then
  redis.call('HDEL', tally, one)
  kinds = kinds - 1
end
-- end vote_take
local slot, count = mine[place], #mine
table.remove(mine, place)
-- shared vote_store
if place == count and string.sub(mine[#mine] or '', 4) ~= string.sub(slot, 4) then
  mine[#mine + 1] = '\0\0\0' .. string.sub(slot, 4) -- the last turn is kept: no later vote may reuse it
end
redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
-- end vote_store
if remember == 0 then
  remember = redis.call('PTTL', voters)
end
redis.call('HSET', operations, field, 'r' .. string.sub(voter, 1, 4) .. slot .. ' ' .. call)
if redis.call('PTTL', operations) < remember then
  redis.call('PEXPIRE', operations, string.format('%.0f', remember))
end
if audit then
  tell(slot, 'event', 'retracted', 'voter', ARGV[7], 'choice', choice, 'weight', weight, 'id', ARGV[8],
    'origin', ARGV[9])
end
for i = #choices, 1, -1 do
  if choices[i] == choice then
    table.remove(choices, i)
    break
  end
end
return {'ok', 0, cast - 1, tonumber(weight), choices}
