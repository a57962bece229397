-- Idempotency: releases an operation that this call has begun and not finished, so that another call may
-- begin it.
--
-- KEYS  1 operation  string, as idempotency_begin writes it
-- ARGV  1 call       as it was given to idempotency_begin
--       2 void       milliseconds for which a tombstone is kept where no call runs the operation; beside one
--                    that does, as long as its lease
--       3 late       1: the call, or a copy of it, may still arrive; then it finds a tombstone and begins
--                    nothing. 0, absent or empty: it has arrived, once
-- Returns 1 when this call has ended the operation, else 0.

local operation = KEYS[1]
local call, void, late = ARGV[1], ARGV[2], ARGV[3] == '1'

local stored = redis.call('GET', operation) or 'void'
local state, who = string.match(stored, '^(%a+) ?(%S*)')
if state == 'done' or state == 'half' then
  return 0 -- a call that still arrives receives that answer
end
local marks = string.match(stored, '^void(.*)$') or string.match(stored, '^run %S+ %S+(.*)$')
local running = string.sub(stored, 1, #stored - #marks)
if late then
  -- shared late_marks
  if call ~= '' and not string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
    marks = marks .. ' -' .. call
  end
  local _, taken_back = string.gsub(marks, ' ', ' ')
  if taken_back > 16 then -- so that a record stays short
    marks = string.gsub(marks, ' %S+', '', taken_back - 16)
  end
  -- end late_marks
end

if state == 'run' and who == call then
  -- DEL goes first: a full Redis accepts it, and then accepts the rest, because the script has already
  -- written.
  redis.call('DEL', operation)
  if marks ~= '' then
    redis.call('SET', operation, 'void' .. marks, 'PX', void)
  end
  return 1
elseif late and state == 'run' then
  redis.call('SET', operation, running .. marks, 'KEEPTTL')
elseif late then
  redis.call('SET', operation, 'void' .. marks, 'PX', void)
end
return 0
