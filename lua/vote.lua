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
--       3 book       hash, ":parts" (the number of parts of the poll); ":buckets", ":slots" (records),
--                    ":ballots" (the largest number), ":choices" (of the tally), ":changes", ":ends" (when
--                    the keys expire), ":audit" (once the stream has begun); "#" and a number -> its ballot,
--                    "choice weight" or "choice weight day", weight 0: voided; "=" and a ballot -> its
--                    number; "~", voter and a turn -> the last 4 bytes of a record that was undone after it
--                    was changed, and of the record that is restored in its place
--       4 operation  string: "v", voter, the record's last 4 bytes, those of the record that it replaced or
--                    zeros, and the calls that received a yes for it and have not ended: " call +call ...",
--                    at most 16, those that received a replay with "+"; or " *" once one of them has
--                    succeeded (see vote_keep). " -call": the last 16 that were undone and may still arrive.
--                    Where no vote is left, "|" and these alone
--       5 audit      stream of events; absent: no audit
-- ARGV  1 voter      12 bytes
--       2 choice     encoded text: no spaces; may be empty
--       3 weight     an integer, 1 or more
--       4 max        votes per voter in this poll
--       5 per_choice votes per voter for the same choice
--       6 change     1: a voter whose only vote is for another choice changes it; 0: it stays
--       7 per_day    votes per voter in the period 8 begins, 9 ends, in milliseconds since 1970; 0: as many
--                    as in the poll
--       10 opens     milliseconds since 1970; 0: already open
--       11 closes    milliseconds since 1970; 0: never
--       12 keep      milliseconds for which the records are kept after the last vote or the closing,
--                    whichever is later
--       13 remember  milliseconds for which the stored answer is kept; 0: as long as the records
--       14 parts     the number of parts of the poll, as the caller believes; the first vote stores it. 0:
--                    unknown, because the poll was not open; then no vote counts
--       15 call      one word that names this call, so that a resend after a lost reply is no replay. A vote
--                    is removed when all calls that received a yes for it are undone (see vote_undo)
--       16 name, 17 id, 18 origin  for the audit stream: voter, operation and origin of the request, encoded
--       19 now       milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, cast, number, choices}
--       reason    ok, changed, conflict, not_open, closed, day_rolled (now is not in the period), duplicate
--                 (the voter has this choice, or has used the only vote), quota (the voter has used max, or
--                 per_day in the period), gone (this call was undone before it arrived), in_progress (16
--                 other calls of this operation have not ended), spread (the poll has another number of
--                 parts, or is open and vote_spread has to be asked)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       cast      votes used by the voter
--       number    replayed: 1 when no undo can remove the vote any more; not_open: milliseconds until the
--                 poll opens; quota: until the period ends, if that helps; day_rolled: now; spread: the
--                 number of parts, 0: unknown, or this part of it has not begun; else 0
--       choices   of the voter's valid votes, the newest last, after this call

local voters, tally, book, operation, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voter, choice, weight = ARGV[1], ARGV[2], ARGV[3]
local max, per_choice, change = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local per_day, begins, ends = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local opens, closes, keep, remember = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]),
  tonumber(ARGV[13])
local parts, call, now = ARGV[14], ARGV[15], tonumber(ARGV[19])
local full, most, none = 64, 256 * 65536 - 1, string.rep('\0', 4)

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
local ballot, day = choice .. ' ' .. weight, ''
if per_day > 0 then
  day = ARGV[8]
  ballot = ballot .. ' ' .. day
end

local b = redis.call('HMGET', book, ':parts', ':slots', ':changes', ':ends', ':buckets', ':ballots',
  '=' .. ballot, ':choices', ':audit')
local slots, changes, ended = tonumber(b[2] or 0), tonumber(b[3] or 0), tonumber(b[4] or 0)
local buckets, ballots, kind = tonumber(b[5] or 1), tonumber(b[6] or 0), tonumber(b[7] or 0)
local kinds, begun = tonumber(b[8] or 0), b[9]
if b[1] and b[1] ~= parts then
  return {'spread', 0, 0, tonumber(b[1]), {}}
end
-- shared vote_book
if not b[1] and redis.call('EXISTS', voters, tally, audit or tally) > 0 then
  return redis.error_reply('GATEHOUSE lost: the book ' .. book .. ': who has voted is unknown')
end
-- end vote_book

-- shared vote_number
local function number(slot)
  local high, middle, low = string.byte(slot, 1, 3)
  return (high * 256 + middle) * 256 + low
end
-- end vote_number

-- shared vote_find
-- Finds the bucket, and in it the voter's records: mine holds the last 4 bytes of each, rest the records of
-- other voters.
local function find()
  local one, two, three, four = string.byte(voter, 1, 4)
  local hash = ((one * 256 + two) * 256 + three) * 256 + four
  local _, exponent = math.frexp(buckets)
  local half = 2 ^ (exponent - 1)
  local index = hash % (2 * half)
  if index >= buckets then
    index = hash % half
  end
  local bucket = redis.call('HGET', voters, index) or ''
  local at = string.find(bucket, voter, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(bucket, voter, at + 1, true)
  end
  if not at then
    return index, half, {}, bucket
  end
  local mine, stop = {}, at
  while string.sub(bucket, stop, stop + 11) == voter do
    mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
    stop = stop + 16
  end
  return index, half, mine, string.sub(bucket, 1, at - 1) .. string.sub(bucket, stop)
end
-- end vote_find

-- shared vote_tally
-- Adds to the sum of a choice, and reports whether the tally has all its choices. If not, it stays as it is.
local function add(one, units)
  if redis.call('HINCRBY', tally, one, units) == tonumber(units) then -- a new choice
    if redis.call('HLEN', tally) < kinds + 1 then
      redis.call('HDEL', tally, one)
      return false
    end
    kinds = kinds + 1
  end
  return true
end

-- Takes from the sum of a choice, and reports whether the tally had so much. If not, it stays as it is.
local function take(one, units)
  local sum = redis.call('HINCRBY', tally, one, '-' .. units)
  local had = sum >= 0
  if not had then
    sum = redis.call('HINCRBY', tally, one, units)
  elseif sum == 0 then
    kinds = kinds - 1
  end
  if sum == 0 then
    redis.call('HDEL', tally, one)
  end
  return had
end
-- end vote_tally

local index, half, mine, rest = find()
-- shared vote_records
if slots > 0 and #mine == 0 and rest == '' and redis.call('HEXISTS', voters, index) == 0 then
  return redis.error_reply('GATEHOUSE lost: records of ' .. voters .. ': who has voted is unknown')
end
-- end vote_records
local cast, had, today, choices, kept, old, old_choice, old_weight = 0, 0, 0, {}, {}, none, '', ''
if #mine > 0 then
  local fields = {}
  for i, slot in ipairs(mine) do
    fields[i] = '#' .. number(slot)
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

local stored = redis.call('GET', operation) or '|'
-- shared vote_words
local words = string.sub(stored, string.sub(stored, 1, 1) == '|' and 2 or 22)
local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
-- end vote_words
if string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
  return {'gone', 0, cast, 0, choices}
elseif string.sub(stored, 1, 1) ~= '|' then
  local text = redis.call('HGET', book, '#' .. number(string.sub(stored, 14, 16))) or ''
  local earlier = string.match(text, '^%S* %d+')
  if string.sub(stored, 1, 13) ~= 'v' .. voter or earlier ~= choice .. ' ' .. weight then
    return {'conflict', 0, cast, 0, {}}
  end
  local reason = 'changed'
  if string.sub(stored, 18, 21) == none then
    reason = 'ok'
  end
  if string.find(calls .. ' ', ' ' .. call .. ' ', 1, true) then
    return {reason, 0, cast, 0, choices}
  elseif string.find(calls .. ' ', ' +' .. call .. ' ', 1, true) then
    return {reason, 1, cast, 0, choices}
  elseif calls == ' *' then
    return {reason, 1, cast, 1, choices}
  end
  local _, told = string.gsub(calls, ' ', ' ')
  if told >= 16 then -- a call that receives a yes has to be remembered
    return {'in_progress', 0, cast, 0, choices}
  end
  redis.call('SET', operation, stored .. ' +' .. call, 'KEEPTTL')
  return {reason, 1, cast, 0, choices}
end

local changing = change and cast == 1 and #choices == 1 and had == 0
if now < opens then
  return {'not_open', 0, cast, opens - now, choices}
elseif closes > 0 and now >= closes then
  return {'closed', 0, cast, 0, choices}
elseif parts == '0' or (not b[1] and parts ~= '1') then
  return {'spread', 0, 0, 0, {}}
elseif per_day > 0 and (now < begins or now >= ends) then
  return {'day_rolled', 0, cast, now, choices}
elseif not changing and (had >= per_choice or (cast >= max and max == 1)) then
  return {'duplicate', 0, cast, 0, choices}
elseif not changing and cast >= max then
  return {'quota', 0, cast, 0, choices}
elseif not changing and per_day > 0 and today >= per_day then
  return {'quota', 0, cast, ends - now, choices}
elseif kind == 0 and ballots >= most then
  return redis.error_reply('GATEHOUSE too many different ballots in ' .. book)
elseif audit and begun and redis.call('EXISTS', audit) == 0 then
  return redis.error_reply('GATEHOUSE lost: the audit stream ' .. audit .. ': Repair lets it begin anew')
end

-- All keys expire at the same time. In a poll without a closing time every vote moves that time; it is set a
-- little later than needed, so that most votes need not set it again.
local finish = math.max(now, closes) + keep
if finish > ended then
  ended = finish
  if now >= closes then
    ended = ended + math.floor(keep / 64)
  end
  b[4] = false
end
local ttl = ended - now

-- Sets the TTL of a key when the time has moved, and when the key has a new field and may thus be new.
local function extend(key, new)
  if new or not b[4] then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- The tally goes first: it can fail (a sum beyond 64 bits) before anything is written.
local whole, reason = add(choice, weight), 'ok'
if whole and changing then
  whole = take(old_choice, old_weight)
  if not whole then
    take(choice, weight)
  end
end
if not whole then
  return redis.error_reply('GATEHOUSE lost: the tally ' .. tally .. ', or a choice of it: see Repair')
end
extend(tally, kinds > tonumber(b[8] or 0))
if changing then
  reason, kept, choices = 'changed', {}, {}
else
  old, old_choice, old_weight = none, '', ''
end

local turn, fields = 0, {':slots', 0, ':changes', changes + 1}
if not b[1] then
  fields[#fields + 1], fields[#fields + 2] = ':parts', parts
end
if not b[4] then
  fields[#fields + 1], fields[#fields + 2] = ':ends', string.format('%.0f', ended)
end
if kinds ~= tonumber(b[8] or 0) then
  fields[#fields + 1], fields[#fields + 2] = ':choices', kinds
end
if audit and not begun then
  fields[#fields + 1], fields[#fields + 2] = ':audit', '1'
end
if kind == 0 then
  kind = ballots + 1
  redis.call('HSET', book, ':ballots', kind, '=' .. ballot, kind, '#' .. kind, ballot)
end
if #mine > 0 then
  turn = (string.byte(mine[#mine], 4) + 1) % 256
end
local slot = string.char(math.floor(kind / 65536), math.floor(kind / 256) % 256, kind % 256, turn)
slots = slots - #mine + #kept + 1
kept[#kept + 1] = slot
choices[#choices + 1] = choice
local new = redis.call('HSET', voters, index, rest .. voter .. table.concat(kept, voter))

if slots > full * buckets then
  local from, stay, go = buckets - half, {}, {}
  local bucket = redis.call('HGET', voters, from) or ''
  for at = 1, #bucket, 16 do
    local record = string.sub(bucket, at, at + 15)
    local one, two, three, four = string.byte(record, 1, 4)
    if (((one * 256 + two) * 256 + three) * 256 + four) % (2 * half) == from then
      stay[#stay + 1] = record
    else
      go[#go + 1] = record
    end
  end
  redis.call('HSET', voters, from, table.concat(stay), buckets, table.concat(go))
  fields[#fields + 1], fields[#fields + 2] = ':buckets', buckets + 1
end
fields[2] = slots
extend(voters, new > 0)
new = redis.call('HSET', book, unpack(fields))
extend(book, new > 0)

if remember == 0 then
  remember = ttl
end
redis.call('SET', operation, 'v' .. voter .. slot .. old .. ' ' .. call .. marks,
  'PX', string.format('%.0f', remember))
if audit then
  local event = changing and 'changed' or 'cast'
  redis.call('XADD', audit, '*', 'event', event, 'voter', ARGV[16], 'choice', choice, 'weight', weight,
    'id', ARGV[17],
    'origin', ARGV[18], 'slot', kind * 256 + turn, 'former', old_choice, 'was', old_weight)
  extend(audit, not begun)
end
return {reason, 0, #kept, 0, choices}
