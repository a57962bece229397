-- Idempotency: keeps how an operation ended. Where the lease of the call is over and another one has begun the operation since, it is
-- that one's to say, and this call changes nothing.
--
-- KEYS  1 operation    string, as idempotency_begin writes it
-- ARGV  1 fingerprint, 2 call   as they were given to idempotency_begin
--       3 outcome      any bytes
--       4 keep         milliseconds that the outcome is kept
--       5 half         1: the operation is done, and more of its outcome may come by another call; 0: this is all of it
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

-- DEL goes first: a full Redis lets it pass, and then the rest as well, since the script has written.
redis.call('DEL', operation)
redis.call('SET', operation, (half and 'half ' or 'done ') .. call .. ' ' .. fingerprint .. ' ' .. outcome, 'PX', keep)
return 1
