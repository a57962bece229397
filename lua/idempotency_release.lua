-- Idempotency: releases an operation that this call has begun and not finished, so that another call may
-- begin it.
--
-- KEYS  1 operation  string, as idempotency_begin writes it
-- ARGV  1 call       as it was given to idempotency_begin
--       2 void       milliseconds for which a tombstone keeps a call that has not arrived yet from beginning
--                    anything; 0: no tombstone
-- Returns 1 when this call has ended the operation, else 0.

local operation = KEYS[1]
local call, void = ARGV[1], ARGV[2]

local stored = redis.call('GET', operation)
if not stored then
  if void ~= '0' then
    redis.call('SET', operation, 'void ' .. call, 'PX', void)
  end
  return 0
end
local state, who = string.match(stored, '^(%a+) (%S+)')
if state ~= 'run' or who ~= call then
  return 0
end
return redis.call('DEL', operation)
