-- Votes: attempts of one moment in one part of a poll without an audit stream. It gives the answers that vote
-- gives to those that it decides, one after the other, and writes what that writes. Those that are rare it
-- does not decide: known operation IDs, voters who change their votes, the first vote for a choice or of a
-- day or weight, a poll that has just begun, and whatever vote refuses with an error. No voter is refused
-- where the poll is not open.
--
-- KEYS  1 voters        hash, as vote writes it
--       2 tally         hash, likewise
--       3 book          hash, likewise
--       4... operations  hash of each attempt, likewise, in the order of the attempts; one may come again
-- ARGV  1 rules         of the poll, as vote takes them
--       2 keep          as vote takes it
--       3 remember      as vote takes it
--       4 parts         as vote takes it
--       5 now           milliseconds since 1970; absent or empty: the server's clock
--       6... attempts   the voter, 12 bytes, and "call choice weight field", as vote takes them, in the order
--                       of arrival, 1000 at most
-- Returns {answer, ...}, for each attempt the answer of vote, or undecided; or undecided, for all attempts

local voters, tally, book = KEYS[1], KEYS[2], KEYS[3]
local rules, keep, remember, parts, now = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4], tonumber(ARGV[5])
local full, none = 32, '\0\0\0\0'

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

-- shared vote_rules
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
-- end vote_rules

-- shared vote_answer
-- The answer as one text: an array costs the server four times as much.
local function answer(reason, replayed, cast, number, choices)
  local text = reason .. ' ' .. replayed .. ' ' .. cast .. ' ' .. number
  if #choices == 0 then
    return text
  end
  return text .. ' ' .. table.concat(choices, ' ')
end
-- end vote_answer

local attempts, fields, places = {}, {':parts', ':state'}, {} -- places: of ballots among the fields
for n = 6, #ARGV do
  local own = ARGV[n] -- with plain searches, which cost a fifth of a pattern
  local one = string.find(own, ' ', 13, true)
  local two = string.find(own, ' ', one + 1, true)
  local three = string.find(own, ' ', two + 1, true)
  local choice, weight = string.sub(own, one + 1, two - 1), string.sub(own, two + 1, three - 1)
  local ballot = choice .. ' ' .. weight .. (day ~= '' and ' ' .. day or '')
  if not places[ballot] then
    fields[#fields + 1] = '=' .. ballot
    places[ballot] = #fields
  end
  attempts[n - 5] = {string.sub(own, 1, 12), string.sub(own, 13, one - 1), choice, weight + 0,
    string.sub(own, three + 1), places[ballot]}
end
local b = redis.call('HMGET', book, unpack(fields))
if b[1] ~= parts then
  return 'undecided'
end
local state = b[2]
-- shared vote_state
local slots, tail, changes, buckets, ballots, kinds, ended =
  string.match(state or '0 0 1 0 0 0', '^(%d+)( (%d+) (%d+) (%d+) (%d+) (%d+))$')
slots, changes, buckets = slots + 0, changes + 0, buckets + 0 -- at a sixth of the cost of tonumber
ballots, kinds, ended = ballots + 0, kinds + 0, ended + 0
-- end vote_state

-- shared vote_number
local function number(slot)
  local high, middle, low = string.byte(slot, 1, 3)
  return (high * 256 + middle) * 256 + low
end
-- end vote_number

-- shared vote_find
-- Returns the number of a voter's bucket, and the largest power of 2 up to the number of buckets.
local function bucket_of(voter)
  local one, two, three, four = string.byte(voter, 1, 4)
  local hash = ((one * 256 + two) * 256 + three) * 256 + four
  local _, exponent = math.frexp(buckets)
  local half = 2 ^ (exponent - 1)
  local index = hash % (2 * half)
  if index >= buckets then
    index = hash % half
  end
  return index, half
end

-- Finds a voter's records in a bucket. Returns the last 4 bytes of each, and where they begin and where what
-- comes behind them does.
local function records_of(bucket, voter)
  local at = string.find(bucket, voter, 1, true)
  while at and at % 16 ~= 1 do
    at = string.find(bucket, voter, at + 1, true)
  end
  if not at then
    return {}, #bucket + 1, #bucket + 1
  end
  local mine, stop = {}, at
  while string.sub(bucket, stop, stop + 11) == voter do
    mine[#mine + 1] = string.sub(bucket, stop + 12, stop + 15)
    stop = stop + 16
  end
  return mine, at, stop
end
-- end vote_find

-- What the attempts need of the other keys is read at once: buckets, sums of choices, and what is known of
-- the operations. One that does not exist is false.
local buckets_at, sum_of, operations_at = {}, {}, {}
local indexes, choices_asked, hashes, hash_of, known_at = {}, {}, {}, {}, {}
for n, attempt in ipairs(attempts) do
  local index, choice, key = bucket_of(attempt[1]), attempt[3], KEYS[n + 3]
  if buckets_at[index] == nil then
    buckets_at[index] = false
    indexes[#indexes + 1] = index
  end
  if sum_of[choice] == nil then
    sum_of[choice] = false
    choices_asked[#choices_asked + 1] = choice
  end
  local hash = operations_at[key]
  if not hash then
    hash = {key = key, fields = {':'}, answers = {}, seen = {}}
    operations_at[key] = hash
    hashes[#hashes + 1] = hash
  end
  hash.fields[#hash.fields + 1] = attempt[5]
  hash_of[n], known_at[n] = hash, #hash.fields
end
for i, bucket in ipairs(redis.call('HMGET', voters, unpack(indexes))) do
  buckets_at[indexes[i]] = bucket
end
for i, sum in ipairs(redis.call('HMGET', tally, unpack(choices_asked))) do
  sum_of[choices_asked[i]] = sum and sum + 0
end
for _, hash in ipairs(hashes) do
  hash.known = redis.call('HMGET', hash.key, unpack(hash.fields))
end

-- Changes of buckets and sums are written when all attempts are decided.
local moved, written, summed, changed = false, {}, {}, {} -- moved: as in vote
local function store(index, bucket)
  buckets_at[index] = bucket
  if not changed[index] then
    changed[index] = true
    written[#written + 1] = index
  end
end

-- Decides an attempt, or returns nil.
local function decide(n, voter, call, choice, weight, field, place)
  local index, half = bucket_of(voter)
  local bucket, sum, kind, hash = buckets_at[index], sum_of[choice], b[place], hash_of[n]
  if not bucket or hash.known[known_at[n]] or hash.seen[field] then
    return nil
  end
  local mine, at, stop = records_of(bucket, voter)
  -- shared vote_before
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
  -- end vote_before
  -- shared vote_refuse
  local changing = change == '1' and cast == 1 and #choices == 1 and had == 0
  if now < opens then
    return answer('not_open', '0', cast, opens - now, choices)
  elseif closes > 0 and now >= closes then
    return answer('closed', '0', cast, '0', choices)
  elseif parts == '0' or (not b[1] and parts ~= '1') then
    return answer('spread', '0', '0', '0', {})
  elseif per_day > 0 and (now < begins or now >= ends) then
    return answer('day_rolled', '0', cast, now, choices)
  elseif not changing and (had >= per_choice or (cast >= max and max == 1)) then
    return answer('duplicate', '0', cast, '0', choices)
  elseif not changing and cast >= max then
    return answer('quota', '0', cast, '0', choices)
  elseif not changing and per_day > 0 and today >= per_day then
    return answer('quota', '0', cast, ends - now, choices)
  end
  -- end vote_refuse
  if changing or not kind or not sum or sum + weight > 9007199254740991 then
    return nil
  end
  kind = kind + 0
  -- shared vote_record
  local turn = #mine > 0 and (string.byte(mine[#mine], 4) + 1) % 256 or 0
  local slot = string.char(math.floor(kind / 65536), math.floor(kind / 256) % 256, kind % 256, turn)
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
  -- end vote_record
  store(index, text)
  if more < 1 then
    changes, moved = changes + 1, true
  end
  if slots > full * buckets then
    local from = buckets - half
    local whole = buckets_at[from] or redis.call('HGET', voters, from) or ''
    -- shared vote_split
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
    -- end vote_split
    store(from, table.concat(stay))
    store(buckets, table.concat(go))
    buckets, moved = buckets + 1, true
  end
  if not summed[choice] then
    summed[choice] = true
    summed[#summed + 1] = choice
  end
  sum_of[choice] = sum + weight
  hash.seen[field] = true
  local answers = hash.answers
  answers[#answers + 1] = field
  answers[#answers + 1] = 'v' .. string.sub(voter, 1, 4) .. slot .. ' ' .. call
  return answer('ok', '0', #kept == 1 and '1' or #kept, '0', choices)
end

local replies = {}
for n, attempt in ipairs(attempts) do
  replies[n] = decide(n, unpack(attempt)) or 'undecided'
end
if #written == 0 then
  return replies
end

-- shared vote_due
-- All keys expire at the same time. In a poll without a closing time every vote moves that time; it is set a
-- little later than needed, so that most votes need not set it again.
local due = math.max(now, closes) + keep > ended
if due then
  ended = math.max(now, closes) + keep
  if now >= closes then
    ended = ended + math.floor(keep / 64)
  end
end
-- end vote_due
local records, sums = {}, {}
for i, index in ipairs(written) do
  records[i * 2 - 1], records[i * 2] = index, buckets_at[index]
end
for i, choice in ipairs(summed) do
  sums[i * 2 - 1], sums[i * 2] = choice, string.format('%.0f', sum_of[choice])
end
redis.call('HSET', voters, unpack(records))
redis.call('HSET', tally, unpack(sums))
if moved or due then
  tail = string.format(' %.0f %.0f %.0f %.0f %.0f', changes, buckets, ballots, kinds, ended)
end
redis.call('HSET', book, ':state', slots .. tail)
if due then
  local ttl = string.format('%.0f', ended - now)
  for _, key in ipairs({voters, tally, book}) do
    redis.call('PEXPIRE', key, ttl)
  end
end
for _, hash in ipairs(hashes) do
  local operations, expiry, answers = hash.key, hash.known[1], hash.answers
  if #answers > 0 then
    -- shared vote_remember
    local least = remember > 0 and now + remember or ended
    if not expiry or expiry + 0 < least then
      least = string.format('%.0f', least + math.floor(remember / 8))
      redis.call('HSET', operations, ':', least)
      redis.call('PEXPIRE', operations, string.format('%.0f', least - now))
    end
    -- end vote_remember
    redis.call('HSET', operations, unpack(answers))
  end
end
return replies
