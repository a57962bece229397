-- Idempotency: begins an operation, unless it is running or done. A refused call writes nothing.
--
-- KEYS  1 operation    string: "run call fingerprint" while it runs, "done call fingerprint outcome"
--                      afterwards, or "half call fingerprint outcome" while the rest of the outcome may still
--                      arrive; "void call" is the tombstone of a call that was undone before it arrived
-- ARGV  1 fingerprint  one word, the same for each repetition of the attempt
--       2 call         one word that names this call: a resend after a lost reply receives ok again
--       3 lease        milliseconds that the operation may run before another call may begin it again
-- Returns {reason, outcome}
--       reason   ok, in_progress, done, conflict (the operation belongs to another attempt), gone (this call
--                was undone before it arrived)
--       outcome  when done, what idempotency_finish was given; else empty

local operation = KEYS[1]
local fingerprint, call, lease = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('GET', operation)
if stored then
  local _, last, state, who, what = string.find(stored, '^(%a+) (%S+) ?(%S*)')
  if state == 'void' then
    if who == call then
      return {'gone', ''}
    end
  elseif what ~= fingerprint then
    return {'conflict', ''}
  elseif state == 'done' or state == 'half' then
    return {'done', string.sub(stored, last + 2)}
  elseif who == call then
    return {'ok', ''}
  else
    return {'in_progress', ''}
  end
end

redis.call('SET', operation, 'run ' .. call .. ' ' .. fingerprint, 'PX', lease)
return {'ok', ''}
