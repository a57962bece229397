-- Votes: records one vote of a voter in a poll, or changes it, and updates the tally in the same step. The
-- sum of the tally is the sum of the records at all times. A refused vote writes nothing.
--
-- A record has 16 bytes: the voter (12), the number of the ballot (3), which says choice, weight and day, and
-- a turn (1), which tells the voter's votes apart. A vote that was undone leaves a record with ballot 0 if it
-- was the voter's last one, so that no later vote reuses its turn. All records of a voter stand together, the
-- newest last, in a bucket that is found by linear hashing: with B buckets, and P the largest power of 2 up
-- to B, it is hash mod 2P, or hash mod P where there is no such bucket. At an average of 64 records per
-- bucket, bucket B - P is split in two.
--
-- KEYS  1 voters     hash, number of the bucket -> records
--       2 tally      hash, choice -> sum of weights
--       3 book       hash, ":state" -> "slots changes buckets ballots choices ends": the number of records;
--                    how often something has changed without one more record; the number of buckets; the
--                    largest number of a ballot; the number of fields of the tally; until when the keys are
--                    kept. ":parts", in a part -> how many parts the poll has. ":audit" -> 1 once the stream
--                    has begun; "#" and a number of 3 bytes -> its ballot, "choice weight" or "choice weight
--                    day", weight 0: voided; "=" and a ballot -> its number; "~", voter and a turn -> the
--                    last 4 bytes of a record that was undone after it was changed, and of the record that is
--                    restored in its place; "^" and voter -> how often the voter's turn has begun anew
--       4 operations hash, field of an operation -> its stored answer: "v", the first 4 bytes of the voter,
--                    the record's last 4 bytes; or "c", the same, and those of the record that it replaced.
--                    Then the calls that received a yes for it and have not ended: " call +call ...", at most
--                    16, those that received a replay with "+"; or " *" once one of them has succeeded (see
--                    vote_keep). " -call": the last 16 that were undone and may still arrive. Where no vote
--                    is left, "|" and these alone. ":" -> until when the key is kept
--       5 audit      stream of events; absent: no audit
-- ARGV  1 voter      12 bytes
--       2 choice     encoded text: no spaces; may be empty
--       3 weight     an integer, 1 or more
--       4 rules      of the poll: "max per_choice change opens closes per_day begins ends". max: votes per
--                    voter; per_choice: votes per voter for the same choice; change 1: a voter whose only
--                    vote is for another choice changes it, 0: it stays; opens: milliseconds since 1970, 0:
--                    already open; closes: the same, 0: never; per_day: votes per voter in the period begins,
--                    ends, 0: as many as in the poll. Empty: "1 1 0 0 0 0 0 0"
--       5 keep       milliseconds for which the records are kept after the last vote or the closing,
--                    whichever is later
--       6 remember   milliseconds for which the stored answer is kept at least, and up to an eighth longer;
--                    0: as long as the records
--       7 call       one word that names this call, so that a resend after a lost reply is no replay. A vote
--                    is removed when all calls that received a yes for it are undone (see vote_undo)
--       8 field      of the operation
--       9 name, 10 id, 11 origin  for the audit stream: voter, operation and origin of the request, encoded;
--                    absent without one
--       12 now       milliseconds since 1970; absent or empty: the server's clock
--       13 parts     of a part: the number of parts of its poll. The book is there already, so one that is
--                    not there, or is of another number, is lost. Absent or empty: the first vote makes it
-- Returns {reason, replayed, cast, number, choice, ...}, as one text: the values, separated by spaces
--       reason    ok, changed, conflict, not_open, closed, day_rolled (now is not in the period), duplicate
--                 (the voter has this choice, or has used the only vote), quota (the voter has used max, or
--                 per_day in the period, or has cast max + 100 in all, those that were changed or taken back
--                 too: each of them may have left a choice, an operation and events), gone (this call was
--                 undone before it arrived), in_progress (16 other calls of this operation have not ended)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       cast      votes used by the voter
--       number    replayed: 1 when no undo can remove the vote any more; not_open: milliseconds until the
--                 poll opens; quota: until the period ends, if that helps; day_rolled: now; else 0
--       choice    of each of the voter's valid votes, the newest last, after this call

local voters, tally, book, operations, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voter, choice, weight, rules = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local keep, remember, call, field = ARGV[5] + 0, ARGV[6] + 0, ARGV[7], ARGV[8]
local now = tonumber(ARGV[12])
local full, most, none = 32, 256 * 65536 - 1, '\0\0\0\0'

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
local max, per_choice, change, opens, closes, per_day, begins, ends = 1, 1, '0', 0, 0, 0, 0, 0
local day = ''
if rules ~= '' then
  max, per_choice, change, opens, closes, per_day, begins, ends =
    string.match(rules, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if per_day ~= '0' then
    day = begins
  end
  max, per_choice, opens, closes = max + 0, per_choice + 0, opens + 0, closes + 0
  per_day, begins, ends = per_day + 0, begins + 0, ends + 0
end
local ballot = choice .. ' ' .. weight .. (day ~= '' and ' ' .. day or '')
-- The answer as one text: an array costs the server four times as much.
local function answer(reason, replayed, cast, number, choices)
  local text = reason .. ' ' .. replayed .. ' ' .. cast .. ' ' .. number
  if #choices == 0 then
    return text
  end
  return text .. ' ' .. table.concat(choices, ' ')
end

local b
local parts = ARGV[13] or ''
if audit or parts ~= '' then
  b = redis.call('HMGET', book, ':state', '=' .. ballot, ':audit', ':parts')
else
  b = redis.call('HMGET', book, ':state', '=' .. ballot)
end
local state, kind, begun = b[1], b[2], audit and b[3]
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
if state and parts ~= '' and b[4] ~= parts then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ' is of another number of parts')
end

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
local cast, had, today, choices, kept, old, old_choice, old_weight = 0, 0, 0, {}, {}, none, '', ''
if #mine > 0 then
  local fields = {}
  for i, slot in ipairs(mine) do
    fields[i] = '#' .. string.sub(slot, 1, 3)
  end
  local texts = redis.call('HMGET', book, unpack(fields))
  for i, slot in ipairs(mine) do
    if texts[i] then -- else it was undone
      local one, units, on = string.match(texts[i], '^(%S*) (%d+) ?(%d*)$')
      cast = cast + 1
      kept[cast] = slot
      if one == choice then
        had = had + 1
      end
      if on == day then
        today = today + 1
      end
      if units ~= '0' then
        choices[#choices + 1] = one
        old, old_choice, old_weight = slot, one, units
      end
    end
  end
end

local known = redis.call('HMGET', operations, field, ':')
local stored, late = known[1], '' -- late: the marks of calls that were undone
if stored then
  -- shared vote_words
  local form = string.sub(stored, 1, 1)
  local length = form == '|' and 1 or form == 'c' and 13 or 9
  local head, words = string.sub(stored, 1, length), string.sub(stored, length + 1)
  local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
  -- end vote_words
  late = marks
  if string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
    return answer('gone', '0', cast, '0', choices)
  elseif form ~= '|' then
    local text = redis.call('HGET', book, '#' .. string.sub(stored, 6, 8)) or ''
    local earlier = string.match(text, '^%S* %d+')
    if form == 'r' or string.sub(stored, 2, 5) ~= string.sub(voter, 1, 4) or
      earlier ~= choice .. ' ' .. weight then
      return answer('conflict', '0', cast, '0', {})
    end
    local reason = form == 'v' and 'ok' or 'changed'
    if string.find(calls .. ' ', ' ' .. call .. ' ', 1, true) then
      return answer(reason, '0', cast, '0', choices)
    elseif string.find(calls .. ' ', ' +' .. call .. ' ', 1, true) then
      return answer(reason, '1', cast, '0', choices)
    elseif calls == ' *' then
      return answer(reason, '1', cast, '1', choices)
    end
    local _, told = string.gsub(calls, ' ', ' ')
    if told >= 16 then -- a call that receives a yes has to be remembered
      return answer('in_progress', '0', cast, '0', choices)
    end
    redis.call('HSET', operations, field, stored .. ' +' .. call)
    return answer(reason, '1', cast, '0', choices)
  end
end
local changing = change == '1' and cast == 1 and #choices == 1 and had == 0
local ever = #mine > 0 and string.byte(mine[#mine], 4) + 1 or 0 -- cast in all, by the turn: one byte
if max > 155 and ever > 0 then
  ever = ever + 256 * (redis.call('HGET', book, '^' .. voter) or 0)
end
if now < opens then
  return answer('not_open', '0', cast, opens - now, choices)
elseif closes > 0 and now >= closes then
  return answer('closed', '0', cast, '0', choices)
elseif not state and parts ~= '' then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
elseif per_day > 0 and (now < begins or now >= ends) then
  return answer('day_rolled', '0', cast, now, choices)
elseif not changing and (had >= per_choice or (cast >= max and max == 1)) then
  return answer('duplicate', '0', cast, '0', choices)
elseif not changing and cast >= max or ever >= max + 100 then
  return answer('quota', '0', cast, '0', choices)
elseif not changing and per_day > 0 and today >= per_day then
  return answer('quota', '0', cast, ends - now, choices)
end
if not kind and ballots >= most then
  return redis.error_reply('GATEHOUSE too many different ballots in ' .. book)
elseif begun and redis.call('EXISTS', audit) == 0 then
  return redis.error_reply('GATEHOUSE lost: the audit stream ' .. audit .. ': Repair lets it begin anew')
end
-- All keys expire at the same time. In a poll without a closing time every vote moves that time; it is set a
-- little later than needed, so that most votes need not set it again.
local due = math.max(now, closes) + keep > ended
if due then
  ended = math.max(now, closes) + keep
  if now >= closes then
    ended = ended + math.floor(keep / 64)
  end
end

-- The tally goes first: it can fail (a sum beyond 64 bits) before anything is written.
local sums, one, units, reason = kinds, choice, weight, 'ok'
if changing and (redis.call('HGET', tally, old_choice) or 0) + 0 < old_weight + 0 then
  return redis.error_reply('GATEHOUSE lost: the tally ' .. tally .. ', or a choice of it: see Repair')
end
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
local fresh = kinds > sums -- the tally may be a new key
if not found then
  return redis.error_reply('GATEHOUSE lost: the tally ' .. tally .. ', or a choice of it: see Repair')
end
if changing then
  reason, kept, choices = 'changed', {}, {}
  one, units = old_choice, old_weight
  -- shared vote_take
  if (redis.call('HGET', tally, one) or 0) + 0 >= units + 0 and
    redis.call('HINCRBY', tally, one, '-' .. units) == 0 then
    redis.call('HDEL', tally, one)
    kinds = kinds - 1
  end
  -- end vote_take
else
  old_choice, old_weight = '', ''
end

local moved = due or kinds ~= sums -- moved: more of the state than the number of records
if not kind then
  ballots, moved = ballots + 1, true
  kind = string.char(math.floor(ballots / 65536), math.floor(ballots / 256) % 256, ballots % 256)
  redis.call('HSET', book, '=' .. ballot, kind, '#' .. kind, ballot)
end
local slot = kind .. string.char(ever % 256)
if ever > 0 and ever % 256 == 0 then
  redis.call('HINCRBY', book, '^' .. voter, 1)
end
local more = #kept + 1 - #mine
slots = slots + more
kept[#kept + 1] = slot
choices[#choices + 1] = choice
local text
if #mine > 0 then
  text = string.sub(bucket, 1, at - 1) .. voter .. table.concat(kept, voter) .. string.sub(bucket, stop)
else -- the server works through each byte of a text that is made, so no more than this one is
  text = bucket .. voter .. slot
end
local new = redis.call('HSET', voters, index, text)

if slots > full * buckets then
  local from = buckets - half
  local whole = redis.call('HGET', voters, from) or ''
  local stay, go = {}, {}
  for i = 1, #whole, 16 do
    local record = string.sub(whole, i, i + 15)
    local one, two, three, four = string.byte(record, 1, 4)
    if (((one * 256 + two) * 256 + three) * 256 + four) % (2 * half) == from then
      stay[#stay + 1] = record
    else
      go[#go + 1] = record
    end
  end
  redis.call('HSET', voters, from, table.concat(stay), buckets, table.concat(go))
  buckets, moved = buckets + 1, true
end
-- The number of records and that of changes never have the same values again: either there is one more
-- record, or one more change.
if moved or more < 1 then
  if more < 1 then
    changes = changes + 1
  end
  tail = string.format(' %.0f %.0f %.0f %.0f %.0f', changes, buckets, ballots, kinds, ended)
end
redis.call('HSET', book, ':state', slots .. tail)

local expiry = known[2]
local least = remember > 0 and now + remember or ended
if not expiry or expiry + 0 < least then
  least = string.format('%.0f', least + math.floor(remember / 8))
  redis.call('HSET', operations, ':', least)
  redis.call('PEXPIRE', operations, string.format('%.0f', least - now))
end
redis.call('HSET', operations, field, (changing and 'c' or 'v') .. string.sub(voter, 1, 4) .. slot ..
  (changing and old or '') .. ' ' .. call .. late)
if audit then
  if not begun then
    redis.call('HSET', book, ':audit', '1')
  end
  local one, two, three, four = string.byte(slot, 1, 4)
  redis.call('XADD', audit, '*',
    'slot', string.format('%.0f', ((one * 256 + two) * 256 + three) * 256 + four),
    'event', changing and 'changed' or 'cast', 'voter', ARGV[9], 'choice', choice, 'weight', weight,
    'id', ARGV[10], 'origin', ARGV[11], 'former', old_choice, 'was', old_weight)
end
-- The TTL of a key is set when the time has moved, and when the key has a new field and may thus be new.
if due or fresh or new > 0 or (audit and not begun) then
  local ttl = string.format('%.0f', ended - now)
  for _, key in ipairs({voters, tally, book, audit}) do
    redis.call('PEXPIRE', key, ttl)
  end
end
return answer(reason, '0', #kept == 1 and '1' or #kept, '0', choices)
