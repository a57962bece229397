-- Budget: gives units of one attempt back on all levels, once.
--
-- KEYS  1 root, 2 rows, 3 calls, then log and node of each level, as in check
-- ARGV  1 units  to give back
--       2 call   the name of the attempt's call
--       3 mode   first; again: an earlier sending may have run; undo: the call itself may not have run, or
--                arrive later, and then takes nothing
--       4 stamp  when the attempt took its units, microseconds; of no meaning for undo
--       5 now    microseconds since 1970; absent or empty: the server's clock
--       6 until  the sequence that check returned; 0: unknown. A count that began later is another one: Redis
--                has lost the one that had the units
--       then for each level that is present its name, as in check
-- Returns 1 when it gave them back, 0 when there was nothing to do

local root, rows, names = KEYS[1], KEYS[2], KEYS[3]
local units, call, mode, stamp, now = ARGV[1] + 0, ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local known = ARGV[6] + 0
local calls = redis.call('GET', names) or ''

local found = string.find(calls, call, 1, true)
local state, ran = string.match(calls, '^([-+=])(%d+)', (found or #calls) + 6)
local full = not state and #calls >= 64 * 24
if state == '-' or state == '=' or full and mode == 'again' then
  return 0 -- known to be done, or forgotten whether it is
end
if found then
  calls = string.sub(calls, 1, found - 1) .. string.sub(calls, found + 24)
elseif full then
  calls = string.sub(calls, 25)
end
local mark = mode == 'undo' and not state and '-' or '='
stamp = mode == 'undo' and ran or stamp
redis.call('SET', names, calls .. call .. mark .. string.format('%016d ', stamp or 0), 'PX', 120000)
if mark == '-' then
  return 0
end

-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local last = (redis.call('HGET', root, '=') or 0) + 0
local sequence = last
for i = 1, (#KEYS - 3) / 2 do
  local log, node, name = KEYS[i * 2 + 2], KEYS[i * 2 + 3], ARGV[i + 6]
  local header = redis.call('LINDEX', log, '0')
  if header then
    local part, base, late, sum, entries, views = string.match(header,
      '^(%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
    local number = math.ceil(stamp / part) - base
    local low, high, count = 1, entries + 0, 0
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local n, many = string.match(redis.call('LINDEX', log, middle), '^(%d+)%*?(%d*)$')
      if n + 0 == number then
        low, high, count = middle, -1, many == '' and 1 or many + 0
      elseif n + 0 < number then
        low = middle + 1
      else
        high = middle - 1
      end
    end
    local back = math.min(units, count)
    if back > 0 then
      redis.call('LSET', log, low, string.format('%d*%d', number, count - back))
      views = string.gsub(views, '(%d+) (%d+) (%d+) %d+ (%d+)', function(window, gone, left, ends)
        left = low <= gone + 0 and left - back or left
        return string.format('%s %s %d 0 %s', window, gone, left, ends)
      end)
      header = string.format('%s %s %s %d %s', part, base, late, sum - back, entries)
      redis.call('LSET', log, '0', header .. views)
    end
  end
  -- Of the periods that have the moment, the one that ended first was in force.
  local milli, field, first = math.floor(stamp / 1000), nil, nil
  for _, each in ipairs(redis.call('HKEYS', node)) do
    local begins, ends = string.match(each, '^(%d+) (%d+)$')
    if ends and begins + 0 <= milli and milli < ends + 0 and (not first or ends + 0 < first) then
      field, first = each, ends + 0
    end
  end
  local p = redis.call('HGET', node, 'p')
  local begins, ends, used, told, rest
  if p then
    begins, ends, used, told, rest = string.match(p, '^(%d+) (%d+) (%d+) (%S+) %d+ (.*)$')
  end
  local inForce = p and not field and begins + 0 <= milli and milli < ends + 0
  local count = field and string.match(redis.call('HGET', node, field), '^%d+ %d+ (.*)$') or inForce and rest
  if count and known > 0 and string.match(count, '^%d+') + 0 > known then
    field, inForce = nil, nil
  end
  if inForce or field then
    sequence = math.max(sequence + 1, now)
    local at = string.format('%d', sequence)
    redis.call('ZADD', rows, at, name)
    if inForce then
      redis.call('HSET', node, 'p', string.format('%s %s %d %s %s %s', begins, ends,
        math.max(used - units, 0), told, at, rest))
    else
      used, rest = string.match(redis.call('HGET', node, field), '^(%d+) %d+ (.*)$')
      redis.call('HSET', node, field, string.format('%d %s %s', math.max(used - units, 0), at, rest))
    end
  end
end
if sequence > last then
  redis.call('HSET', root, '=', string.format('%d', sequence))
  if last == 0 then
    redis.call('PEXPIRE', root, '63244800000')
    redis.call('PEXPIRE', rows, '63244800000')
  end
end
return 1
