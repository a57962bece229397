-- Idempotency: begins an operation, unless it is running or done, or there is no room for it. A refused call
-- writes nothing.
--
-- KEYS  1 operation    string: "run call fingerprint" while it runs, "done call fingerprint outcome"
--                      afterwards, or "half call fingerprint left outcome" while the rest of the outcome may
--                      still arrive: until the key has left milliseconds to live. "run call fingerprint -call
--                      -call ..." has the last 16 calls that were undone and may still arrive, "void -call
--                      -call ..." these alone
--       2 actor        hash, as idempotency_finish writes it: what the actor has stored
--       3 part         hash, the same: what all actors of this part of the guard have stored
-- ARGV  1 fingerprint  one word, the same for each repetition of the attempt
--       2 call         one word that names this call: a resend after a lost reply receives ok again
--       3 lease        milliseconds that the operation may run before another call may begin it again
--       4 actor_most   bytes that the actor may have stored
--       5 part_most    bytes that all actors of the part may have stored
--       6 now          milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, outcome}
--       reason   ok, in_progress (it runs, or the rest of its outcome may still arrive), done, conflict (the
--                operation belongs to another attempt), gone (this call was undone before it arrived), quota
--                (the actor has no room for it), not_ready (the part has none)
--       outcome  when done, what idempotency_finish was given; of quota and not_ready, the milliseconds
--                until there is room; else empty

local operation, actor, part = KEYS[1], KEYS[2], KEYS[3]
local fingerprint, call, lease = ARGV[1], ARGV[2], ARGV[3]
local actor_most, part_most, now = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

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

-- full returns for how many milliseconds the counter has no room for an operation without its answer, as
-- idempotency_finish counts it at most; 0: it has room.
local function full(counter, most)
  local total, moments, bytes = stored_bytes(counter)
  local wait = 0
  for i = 1, #moments do
    if total + #operation * 2 + 768 <= most then
      break
    end
    wait, total = moments[i] - now, total - bytes[moments[i]]
  end
  return wait
end
local wait = full(actor, actor_most)
if wait > 0 then
  return {'quota', string.format('%.0f', wait)}
end
wait = full(part, part_most)
if wait > 0 then
  return {'not_ready', string.format('%.0f', wait)}
end

redis.call('SET', operation, 'run ' .. call .. ' ' .. fingerprint .. marks, 'PX', lease)
return {'ok', ''}
