-- Idempotency: stores the outcome of an operation, without its answer where the actor or the part has no room
-- for it, and counts its bytes. When the lease of the call has ended and another call has begun the operation
-- since, this call changes nothing.
--
-- KEYS  1 operation    string, as idempotency_begin writes it
--       2 actor        hash: moment -> the bytes that leave the counter then. Those of an operation leave it
--                      when the operation expires, or up to an eighth of keep later
--       3 part         hash, the same for all actors of this part of the guard
-- ARGV  1 fingerprint, 2 call   as they were given to idempotency_begin
--       3 outcome      any bytes
--       4 keep         milliseconds for which the outcome is kept
--       5 left         milliseconds of keep that are left when the rest of the outcome will not come any
--                      more; empty: this is all of it
--       6 brief        the outcome without its answer; it stands in for the outcome where the actor or the
--                      part would have more than half of their most. Empty: it is stored in any case
--       7 actor_most, 8 part_most   as they were given to idempotency_begin
--       9 now          milliseconds since 1970; absent or empty: the server's clock
-- Returns 1 when the outcome of this call is kept, 2 when it is kept without its answer, else 0.

local operation, actor, part = KEYS[1], KEYS[2], KEYS[3]
local fingerprint, call, outcome, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local left, brief = ARGV[5], ARGV[6]
local actor_most, part_most, now = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local stored, known = redis.call('GET', operation), 0
-- bytes is no less than what Redis uses for a value: allocators round up by a quarter at most.
local function bytes(value) return math.ceil((#operation + #value) * 1.25) + 96 end
if stored then
  local state, who = string.match(stored, '^(%a+) (%S+)')
  if state ~= 'void' and who ~= call then
    return 0
  elseif state == 'done' or state == 'half' and left ~= '' then
    return 1
  elseif state == 'half' then
    known = bytes(stored)
  end
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
-- shared stored_bytes
-- stored_bytes returns the bytes that are still counted, their moments in order, the bytes of each moment,
-- and the fields whose moment has passed.
local function stored_bytes(counter)
  local total, moments, bytes, over = 0, {}, {}, {}
  local all = redis.call('HGETALL', counter)
  for i = 1, #all, 2 do
    local moment = tonumber(all[i])
    if moment > now then
      bytes[moment] = tonumber(all[i + 1])
      total = total + bytes[moment]
      moments[#moments + 1] = moment
    else
      over[#over + 1] = all[i]
    end
  end
  table.sort(moments)
  return total, moments, bytes, over
end
-- end stored_bytes

-- record returns the value of the operation with an outcome, and the bytes that it adds.
local function record(outcome)
  local state = 'done '
  if left ~= '' then
    state, outcome = 'half ', left .. ' ' .. outcome
  end
  local value = state .. call .. ' ' .. fingerprint .. ' ' .. outcome
  return value, math.max(bytes(value) - known, 0)
end

local of_actor, moments, at, over = stored_bytes(actor)
local of_part, part_moments, _, part_over = stored_bytes(part)
local value, added = record(outcome)
local kept = 1
if brief ~= '' and (of_actor + added > actor_most / 2 or of_part + added > part_most / 2) then
  value, added = record(brief)
  kept = 2
end
local step = math.max(math.floor(keep / 8), 1)
local moment = math.ceil((now + keep) / step) * step
if not at[moment] then
  added = added + 192 -- for the counter
end

-- DEL goes first: a full Redis accepts it, and then accepts the rest, because the script has already written.
redis.call('DEL', operation)
redis.call('SET', operation, value, 'PX', keep)
local field = string.format('%.0f', moment)
local function count(counter, moments, over)
  for i = 1, #over do
    redis.call('HDEL', counter, over[i])
  end
  redis.call('HINCRBY', counter, field, string.format('%.0f', added))
  redis.call('PEXPIRE', counter, string.format('%.0f', math.max(moment, moments[#moments] or 0) - now))
end
count(actor, moments, over)
count(part, part_moments, part_over)
return kept
