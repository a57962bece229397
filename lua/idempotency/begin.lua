-- Idempotency: begins an operation, unless it is running or done. A refused call writes nothing.
--
-- KEYS  1 operation    string: "run call fingerprint" while it runs, "done call fingerprint outcome"
--                      afterwards, or "half call fingerprint left outcome" while the rest of the outcome may
--                      still arrive: until the key has left milliseconds to live. "run call fingerprint -call
--                      -call ..." has the last 16 calls that were undone and may still arrive, "void -call
--                      -call ..." these alone
-- ARGV  1 fingerprint  one word, the same for each repetition of the attempt
--       2 call         one word that names this call: a resend after a lost reply receives ok again
--       3 lease        milliseconds that the operation may run before another call may begin it again
-- Returns {reason, outcome}
--       reason   ok, in_progress (it runs, or the rest of its outcome may still arrive), done, conflict (the
--                operation belongs to another attempt), gone (this call was undone before it arrived)
--       outcome  when done, what idempotency_finish was given; else empty

local operation = KEYS[1]
local fingerprint, call, lease = ARGV[1], ARGV[2], ARGV[3]

local stored, marks = redis.call('GET', operation), ''
if stored then
  local _, last, state, who, what = string.find(stored, '^(%a+) (%S+) ?(%S*)')
  local void = state == 'void'
  if void then
    marks = string.sub(stored, 5)
  elseif state == 'run' then
    marks = string.sub(stored, last + 1)
  end
  if string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
    return {'gone', ''}
  elseif not void and what ~= fingerprint then
    return {'conflict', ''}
  elseif state == 'done' then
    return {'done', string.sub(stored, last + 2)}
  elseif state == 'half' then
    local _, behind, left = string.find(stored, '^ (%d+)', last + 1)
    if redis.call('PTTL', operation) > tonumber(left) then
      return {'in_progress', ''}
    end
    return {'done', string.sub(stored, behind + 2)}
  elseif who == call then
    return {'ok', ''}
  elseif not void then
    return {'in_progress', ''}
  end
end

redis.call('SET', operation, 'run ' .. call .. ' ' .. fingerprint .. marks, 'PX', lease)
return {'ok', ''}
