-- Idempotency: stores the outcome of an operation. When the lease of the call has ended and another call has
-- begun the operation since, this call changes nothing.
--
-- KEYS  1 operation    string, as idempotency_begin writes it
-- ARGV  1 fingerprint, 2 call   as they were given to idempotency_begin
--       3 outcome      any bytes
--       4 keep         milliseconds for which the outcome is kept
--       5 left         milliseconds of keep that are left when the rest of the outcome will not come any
--                      more; empty or absent: this is all of it
-- Returns 1 when the outcome of this call is kept, else 0.

local operation = KEYS[1]
local fingerprint, call, outcome, keep, left = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or ''

local stored = redis.call('GET', operation)
if stored then
  local state, who = string.match(stored, '^(%a+) (%S+)')
  if state ~= 'void' and who ~= call then
    return 0
  elseif state == 'done' or state == 'half' and left ~= '' then
    return 1
  end
end

-- DEL goes first: a full Redis accepts it, and then accepts the rest, because the script has already written.
redis.call('DEL', operation)
local state = 'done '
if left ~= '' then
  state, outcome = 'half ', left .. ' ' .. outcome
end
redis.call('SET', operation, state .. call .. ' ' .. fingerprint .. ' ' .. outcome, 'PX', keep)
return 1
