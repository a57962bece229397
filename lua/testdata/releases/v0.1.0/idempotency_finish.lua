-- Idempotency: stores the outcome of an operation. When the lease of the call has ended and another call has
-- begun the operation since, this call changes nothing.
--
-- KEYS  1 operation    string, as idempotency_begin writes it
-- ARGV  1 fingerprint, 2 call   as they were given to idempotency_begin
--       3 outcome      any bytes
--       4 keep         milliseconds for which the outcome is kept
--       5 half         1: the operation is done, and another call may bring the rest of the outcome; 0: the
--                      outcome is complete
-- Returns 1 when the outcome of this call is kept, else 0.

local operation = KEYS[1]
local fingerprint, call, outcome, keep, half = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'

local stored = redis.call('GET', operation)
if stored then
  local state, who = string.match(stored, '^(%a+) (%S+)')
  if state ~= 'void' and who ~= call then
    return 0
  elseif state == 'done' or state == 'half' and half then
    return 1
  end
end

-- DEL goes first: a full Redis accepts it, and then accepts the rest, because the script has already written.
redis.call('DEL', operation)
redis.call('SET', operation, (half and 'half ' or 'done ') .. call .. ' ' .. fingerprint .. ' ' .. outcome,
  'PX', keep)
return 1
