-- Votes: records one voter's choice in a poll and adds it to the tally, in one step.
-- At all times the sum of the tally is the sum of the records. A refused vote writes nothing.
--
-- KEYS  1 voters     hash, voter -> choices so far: "choice=weight", separated by spaces
--       2 tally      hash, choice -> sum of weights
--       3 operation  string: the attempt, and the calls that have been told that its vote counts: "voter choice weight call
--                    call ...". Or "|" and a call that was taken back before it came
-- ARGV  1 voter      encoded text: no spaces, no "="
--       2 choice     encoded text, may be empty
--       3 weight     an integer, 1 or more
--       4 max        choices that a voter has in this poll
--       5 opens      milliseconds since 1970; 0: open already
--       6 closes     milliseconds since 1970; 0: never
--       7 keep       milliseconds that the records are kept after the last vote or the closing, whichever is later
--       8 remember   milliseconds that the stored answer is kept; 0: as long as the records
--       9 call       one word that names this call: when it is sent again because its reply was lost, that is no replay.
--                    A vote is taken back when all calls that were told of it are (see vote_undo)
--       10 now       milliseconds; absent or empty: the server's clock
-- Returns {reason, replayed, cast, retry, choices}
--       reason    ok, conflict, not_open, closed, duplicate (had this choice, or had the only one), quota (had max),
--                 gone (this call was taken back before it came)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       cast      how many choices the voter has made
--       retry     milliseconds until the poll opens; else 0
--       choices   the voter's record after this call

local voters, tally, operation = KEYS[1], KEYS[2], KEYS[3]
local voter, choice, weight = ARGV[1], ARGV[2], ARGV[3]
local max, opens, closes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local keep, remember = tonumber(ARGV[7]), tonumber(ARGV[8])
local call, now = ARGV[9], tonumber(ARGV[10])

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local record = redis.call('HGET', voters, voter) or ''
local cast, had = 0, false
for one in string.gmatch(record, '([^ ]*)=') do
  cast = cast + 1
  had = had or one == choice
end

local attempt = voter .. ' ' .. choice .. ' ' .. weight
local stored = redis.call('GET', operation)
if stored == '| ' .. call then
  return {'gone', 0, cast, 0, record}
elseif stored and string.sub(stored, 1, 1) ~= '|' then
  if string.sub(stored, 1, #attempt + 1) ~= attempt .. ' ' then
    return {'conflict', 0, cast, 0, ''}
  end
  if string.find(stored .. ' ', ' ' .. call .. ' ', #attempt + 1, true) then
    return {'ok', 0, cast, 0, record}
  end
  if #stored < #attempt + 16 * (#call + 1) then -- nobody shares with more than a few
    redis.call('SET', operation, stored .. ' ' .. call, 'KEEPTTL')
  end
  return {'ok', 1, cast, 0, record}
end

if now < opens then
  return {'not_open', 0, cast, opens - now, record}
elseif closes > 0 and now >= closes then
  return {'closed', 0, cast, 0, record}
elseif had or (cast >= max and max == 1) then
  return {'duplicate', 0, cast, 0, record}
elseif cast >= max then
  return {'quota', 0, cast, 0, record}
end

-- The tally goes first: it can fail (a sum beyond 64 bits), and then nothing has been written.
redis.call('HINCRBY', tally, choice, weight)
if record ~= '' then
  record = record .. ' '
end
record = record .. choice .. '=' .. weight
redis.call('HSET', voters, voter, record)

local ttl = keep + math.max(closes - now, 0)
if remember == 0 then
  remember = ttl
end
redis.call('SET', operation, attempt .. ' ' .. call, 'PX', remember)
redis.call('PEXPIRE', voters, ttl)
redis.call('PEXPIRE', tally, ttl)
return {'ok', 0, cast + 1, 0, record}
