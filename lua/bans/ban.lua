-- Bans: reports whether an actor is banned; counts a refusal as a strike and bans the actor at one strike too
-- many; or bans by hand. A ban caused by strikes lasts `first` at level 0 and twice as long per level, up to
-- `longest`. Such a ban raises the level by one, unless it lasts `longest`. Each `decay` that passes after
-- the end of the last ban lowers the level by one. Strikes do not count during a ban, and a ban deletes the
-- strikes before it.
--
-- KEYS  1 ban      string: the begin and end of the last ban, in microseconds since 1970, and the level
--       2 strikes  list: the moments of the last strikes in microseconds since 1970, oldest first, at most
--                  max
-- ARGV  1 call     look: report the state; strike: count one more refusal; ban: ban by hand; lengthen: ban
--                  by hand, unless the current ban lasts as long
--       2 decay    milliseconds
--       3 max      strikes in any period that do not cause a ban, 1 or more
--       4 period   milliseconds
--       5 first    milliseconds
--       6 longest  milliseconds, no less than first
--       7 length   milliseconds from now on of a ban by hand, which replaces the current ban
--       8 now      microseconds since 1970; absent or empty: the server's clock
--       A look without KEYS 2 reports 0 strikes. An argument that a call does not use is 0.
-- Returns {banned, left, level, strikes}
--       banned   1 when this call has banned the actor
--       left     microseconds until the ban ends; 0 when there is none
--       level    of the next ban
--       strikes  in the period that ends now, for a look; else 0

local ban, strikes = KEYS[1], KEYS[2]
local call, decay, max, period = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local first, longest, length, now = ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0, tonumber(ARGV[8])

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro

local begin, finish, level = now, now, 0

-- Stores the ban that begins now. The extra second covers a pause of the server between the script's start,
-- from which a TTL counts, and its TIME.
local function keep()
  redis.call('SET', ban, string.format('%.0f %.0f %.0f', now, finish, level),
    'PX', math.ceil((finish - now) / 1000) + level * decay + 1000)
end

local record = redis.call('GET', ban)
if record then
  begin, finish, level = string.match(record, '(%d+) (%d+) (%d+)')
  begin, finish, level = begin + 0, finish + 0, level + 0
  if begin > now then
    -- The clock was set back, perhaps by years. How much of the ban has passed is unknown, so it begins
    -- again.
    finish = now + finish - begin
    keep()
  elseif finish <= now then
    level = math.max(level - math.floor((now - finish) / (decay * 1000)), 0)
  end
end
local left = math.max(finish - now, 0)

if call == 'look' then
  local count = 0
  if strikes then
    for _, at in ipairs(redis.call('LRANGE', strikes, 0, '-1')) do
      if at + 0 <= now and now - at < period * 1000 then
        count = count + 1
      end
    end
  end
  return {0, left, level, count}
end

if call == 'strike' then
  if left > 0 then
    return {0, left, level, 0}
  end
  -- After the clock was set back the age of the strikes is unknown. The older strikes are deleted: no ban is
  -- due.
  local last, oldest = redis.call('LINDEX', strikes, '-1'), redis.call('LINDEX', strikes, -max)
  local unknown = last and last + 0 > now
  if unknown or not oldest or now - oldest >= period * 1000 then
    local count = redis.call('RPUSH', strikes, now)
    if unknown or count > max then
      redis.call('LTRIM', strikes, unknown and -1 or -max, '-1')
    end
    redis.call('PEXPIRE', strikes, period + 1000)
    return {0, 0, level, 0}
  end
  length = math.min(first * 2 ^ level, longest)
  if length < longest then
    level = level + 1
  end
end

if call == 'lengthen' and left >= length * 1000 then
  return {0, left, level, 0}
end

finish = now + length * 1000
keep()
redis.call('UNLINK', strikes)
return {1, length * 1000, level, 0}
