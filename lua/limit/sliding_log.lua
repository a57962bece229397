-- Sliding windows: at most `max` units in any `window`, for any limits, all or nothing, whatever other limits
-- the same actor has been asked about: those of another release, or of another tier. It decides what
-- sliding_window and sliding_parts leave, on their logs, and gives the same answers.
--
-- Limits that count one by one have a log, and limits that count by parts another one. As long as both are
-- asked for, each has all units; one alone has the first key. A limit is a view of its log. One that this
-- attempt does not name stays in the header, behind a semicolon, until its window has passed since an attempt
-- that named it took units. So the log keeps what it needs. A limit without a view finds its place by search.
-- Where the other log goes back further, or its own one does not exist, the other one decides, and the first
-- attempt that is allowed makes its own from that.
--
-- A log keeps no more units than the largest max of its views and a quarter, 50 at least: older ones decide
-- nothing, unless so many are given back. A refused attempt writes nothing. But any attempt makes units of
-- the future units of now: the clock was set back, and nobody knows how long before now they were taken.
--
-- KEYS  1 log      list, as in sliding_window or as in sliding_parts
--       2 parts    list, as in sliding_parts, while there is one beside that of sliding_window
-- ARGV  1 limits   those that count one by one, as in the header of their log; empty: none
--       2 limits   those that count by parts, as in the header of theirs; empty: none
--       3 now      microseconds since 1970; empty: the server's clock
--       4 cost     units that this attempt takes, no more than the smallest max; 0: take none, and answer
--                  whether one unit would be allowed
--       then max, window, part  units, milliseconds, microseconds; for each limit; a part of 0 counts one by
--       one
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}, as
--         sliding_window does

local now, cost = tonumber(ARGV[3]), ARGV[4] + 0
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

-- A log: its entries are units or parts of them, of one or two numbers each.
local function read(key, text, width, limits)
  local l = {key = key, width = width, limits = limits, views = {}, entries = 0, units = 0, keeps = -1}
  if not text then
    return l
  end
  local named, text, tail = string.match(text, '^(.-)[:|]([%d ]+);?(.*)$')
  local numbers, n = {}, 0
  for number in string.gmatch(text, '%d+') do
    numbers[#numbers + 1] = number + 0
  end
  local function each()
    n = n + 1
    return numbers[n]
  end
  l.exists = true
  l.grain = width == 2 and each() or 100
  l.birth = each() -- of the first log its base
  l.base = width == 2 and math.ceil(l.birth / l.grain) or l.birth
  l.entries = (redis.call('LLEN', key) - 1) / width
  l.units = width == 2 and each() or l.entries
  l.at = math.ceil(now / l.grain)
  l.newest = l.entries > 0 and l.base + redis.call('LINDEX', key, -width) or l.base
  -- The numbers are longer than they need be.
  l.long = l.at - l.base > 2147483647 and (redis.call('LINDEX', key, '1') or 1e10) - 1073741824 > 0
  l.late = math.min(l.newest * l.grain, now) -- when the limits of the header were named last
  for max, window in string.gmatch(named, '(%d+)/(%d+)[/%d]*') do
    local gone = each()
    l.views[#l.views + 1] = {max = max + 0, window = window * 1000, gone = gone,
      left = width == 2 and each() or gone, named = l.late}
  end
  for max, window, gone, left, moment in string.gmatch(tail, '(%d+),(%d+),(%d+),(%d+),(%d+)') do
    l.views[#l.views + 1] = {max = max + 0, window = window * 1000, gone = gone + 0, left = left + 0,
      named = math.min(moment * 1000, now)}
  end
  for _, v in ipairs(l.views) do -- for how long it keeps units
    l.keeps = math.max(l.keeps, v.window)
  end
  if l.newest > l.at then
    local base = math.min(l.base, l.at)
    for place = l.entries, 1, -1 do
      local number = l.base + redis.call('LINDEX', key, (place - 1) * width + 1)
      if number <= l.at and base == l.base then
        break
      end
      redis.call('LSET', key, (place - 1) * width + 1, string.format('%.0f', math.min(number, l.at) - base))
    end
    local front, birth = '^(.-:)%d+', base
    if width == 2 then
      front, birth = '^(.-|%d+ )%d+', math.min(l.birth, now)
    end
    if birth < l.birth then
      local header = string.gsub(redis.call('LINDEX', key, '0'), front, '%1' .. string.format('%.0f', birth))
      redis.call('LSET', key, '0', header)
    end
    l.birth, l.base, l.newest = birth, base, l.at
    redis.call('PEXPIRE', key, math.ceil((l.grain + l.keeps * 2.25) / 1000) + 1000)
  end
  return l
end

-- When an entry leaves a window, as a limit counts it: by parts, where the log counts one by one.
local function leaves(l, number, window, part)
  local moment = (l.base + number) * l.grain
  if l.width == 1 and part > 0 then
    moment = math.ceil(moment / part) * part
  end
  return moment + window
end

-- How many entries have left a window, and their units; from a view that had as many already.
local function advance(l, window, part, view)
  local low, high, step = view and view.gone or 0, l.entries + 1, 1
  while high - low > 1 do
    local probe = low + step
    if probe >= high then
      probe = math.floor((low + high) / 2)
    end
    if leaves(l, redis.call('LINDEX', l.key, (probe - 1) * l.width + 1), window, part) <= now then
      low, step = probe, step * 2
    else
      high, step = probe, l.entries
    end
  end
  local left = low
  if l.width == 2 then
    left = view and view.left or 0
    for from = view and view.gone or 0, low - 1, 100 do
      local numbers = redis.call('LRANGE', l.key, from * 2 + 1, math.min(from + 100, low) * 2)
      for n = 2, #numbers, 2 do
        left = left + numbers[n]
      end
    end
  end
  return low, left
end

-- The moment when this many more units have left, besides those that have.
local function lacking(l, gone, units, window, part)
  if l.width == 1 then
    return leaves(l, redis.call('LINDEX', l.key, gone + units), window, part)
  end
  local leave
  for from = gone, l.entries - 1, 100 do
    local numbers = redis.call('LRANGE', l.key, from * 2 + 1, (from + 100) * 2)
    for n = 1, #numbers, 2 do
      if numbers[n + 1] ~= '0' then -- else all units of the part were given back
        units, leave = units - numbers[n + 1], leaves(l, numbers[n], window, part)
        if units <= 0 then
          return leave
        end
      end
    end
  end
  return leave
end

local text, byParts = redis.call('LINDEX', KEYS[1], '0'), KEYS[2] -- the key of the log by parts
if text and string.match(text, '[:|]') == '|' then
  byParts = KEYS[1]
end
local logs = {
  read(KEYS[1], byParts == KEYS[2] and text, 1, ARGV[1]),
  read(byParts, byParts == KEYS[1] and text or redis.call('LINDEX', KEYS[2], '0'), 2, ARGV[2]),
}

local binding, remaining, retry, resets
local views, grains = {}, {100} -- of this attempt, by log; the grain of a log that is made anew
for i = 1, (#ARGV - 4) / 3 do
  local max, window, part = ARGV[2 + i * 3] + 0, ARGV[3 + i * 3] * 1000, ARGV[4 + i * 3] + 0
  local which = part > 0 and 2 or 1
  local log, known = logs[which], nil
  if part > 0 then
    grains[2] = math.min(grains[2] or part, part)
  end
  for _, v in ipairs(log.views) do
    if v.window == window and (not known or v.gone > known.gone) then
      known = v
    end
  end
  if not known and logs[3 - which].keeps > log.keeps then -- the other log goes back further
    log = logs[3 - which]
    logs[which].anew = true
  end
  local gone, out = 0, 0
  if log.entries > 0 then
    gone, out = advance(log, window, part, known)
  end
  views[which] = views[which] or {}
  views[which][#views[which] + 1] = {max = max, window = window, gone = gone, left = out, found = log}
  local left, next = max - log.units + out, nil
  if log.units > out then
    next = lacking(log, gone, 1, window, part)
  end
  local wait
  if left < need then
    wait = (need - left > 1 and lacking(log, gone, need - left, window, part) or next) - now
  end
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit
  if not retry and binding == i then
    local grain = log == logs[which] and log.grain or part > 0 and part or 100
    resets = next or (cost > 0 and math.ceil(now / grain) * grain + window or now)
  end
end
if retry then
  return {0, remaining, retry, binding}
end
if cost == 0 then
  return {1, remaining, now, binding, resets - now}
end
-- Adds numbers to the end of a list. A call takes only so many arguments.
local function push(key, numbers)
  for from = 1, #numbers, 1000 do
    redis.call('RPUSH', key, unpack(numbers, from, math.min(from + 999, #numbers)))
  end
end

-- Makes a log anew from the entries of one, in grains of another length. Its places are found by search then.
local function remake(l, from, grain, longest)
  local old = redis.call('LRANGE', from.key, '1', '-1')
  local base, birth, at, most = nil, nil, math.ceil(now / grain), 0
  for _, v in ipairs(l.views) do
    most = math.max(most, v.max)
  end
  local numbers, units, entries, last = {}, 0, 0, nil
  local skip = l.width == 1 and math.max(from.units - most, 0) or 0
  for n = 1, #old, from.width do
    local number, count = from.base + old[n], from.width == 2 and old[n + 1] + 0 or 1
    local moment = math.min(math.ceil(number * from.grain / grain), at)
    local skipped = math.min(skip, count)
    skip, count = skip - skipped, count - skipped
    if count > 0 and moment * grain + longest > now then
      base, birth = base or moment, birth or (number - 1) * from.grain
      units = units + count
      if l.width == 2 and last == moment then
        numbers[#numbers] = numbers[#numbers] + count
      elseif l.width == 2 then
        numbers[#numbers + 1], numbers[#numbers + 2] = moment, count
        entries = entries + 1
      else
        for _ = 1, count do
          numbers[#numbers + 1] = moment
        end
        entries = #numbers
      end
      last = moment
    end
  end
  redis.call('DEL', l.key)
  birth = math.max(birth or now, from.width == 2 and from.birth or 0)
  base = l.width == 2 and math.ceil(birth / grain) or base
  l.birth = l.width == 2 and birth or base or at
  l.exists, l.grain, l.base, l.at = entries > 0, grain, base or at, at
  l.units, l.entries, l.newest = units, entries, last
  for _, v in ipairs(l.views) do
    v.gone, v.left = 0, 0
  end
  for n = 1, #numbers, l.width do
    numbers[n] = string.format('%.0f', numbers[n] - l.base)
  end
  if entries > 0 then
    redis.call('RPUSH', l.key, '')
    push(l.key, numbers)
  end
end

-- Of each log the views that stay: those of this attempt, and those of others whose time is not over.
local both = 0
for which, l in ipairs(logs) do
  local own = views[which] or {}
  local kept = {}
  for n, v in ipairs(own) do
    kept[n] = v
  end
  for _, v in ipairs(l.views) do
    local again = v.named + v.window <= now
    for _, o in ipairs(own) do
      again = again or o.window == v.window and o.max == v.max
    end
    if not again then
      kept[#kept + 1] = v
    end
  end
  l.views, l.mine = kept, #own
  if #kept > 0 then
    both = both + 1
  end
end

-- The log by parts has the second key while there is another one.
local function move(l, key)
  if l.key ~= key and l.exists then
    redis.call('RENAME', l.key, key)
  end
  l.key = key
end

if both == 2 then
  move(logs[2], KEYS[2])
end
for which, l in ipairs(logs) do
  local other, longest, most, ends = logs[3 - which], 0, 0, nil
  for n, v in ipairs(l.views) do
    longest, most = math.max(longest, v.window), math.max(most, v.max)
    if n > l.mine then
      ends = math.min(ends or v.named + v.window, v.named + v.window)
    end
  end
  local grain = grains[which]
  if #l.views > 0 then
    if (l.anew or not l.exists) and other.exists then
      remake(l, other, grain or 100, longest)
    elseif not l.exists then
      l.grain, l.at = grain, math.ceil(now / grain)
      l.base = l.at
      l.birth = l.width == 2 and now or l.base
    else
      -- Each time rounds up, so two releases in turn must not do it in turn: to longer parts only for room.
      local other = grain and (grain < l.grain or grain > l.grain and l.entries > 10000)
      if l.long or other then
        remake(l, l, other and grain or l.grain, longest)
      end
    end
  end
  l.longest, l.most, l.ends = longest, most, ends
end
if both == 1 and #logs[1].views == 0 then
  if logs[1].exists then
    redis.call('DEL', KEYS[1])
  end
  move(logs[2], KEYS[1])
elseif both == 1 and logs[2].key == KEYS[2] and logs[2].exists then
  redis.call('DEL', KEYS[2])
end

for _, l in ipairs(logs) do
  if #l.views > 0 then
    local longest, most = l.longest, l.most
    local entries = l.entries
    if l.width == 1 then
      local unit, units = string.format('%.0f', l.at - l.base), {}
      if not l.exists then
        units[1] = ''
      end
      for _ = 1, cost do
        units[#units + 1] = unit
      end
      push(l.key, units)
      entries = entries + cost
    elseif entries > 0 and l.newest == l.at then
      redis.call('LSET', l.key, '-1', string.format('%.0f', redis.call('LINDEX', l.key, '-1') + cost))
    else
      local numbers = {string.format('%.0f', l.at - l.base), string.format('%.0f', cost)}
      if not l.exists then
        table.insert(numbers, 1, '')
      end
      push(l.key, numbers)
      entries = entries + 1
    end
    l.units = l.units + cost
    if l.width == 2 then
      l.birth = math.min(l.birth, now) -- the clock may have been set back within a part
    end

    local drop, dropped
    for _, v in ipairs(l.views) do
      if l.entries > 0 then
        v.gone, v.left = advance(l, v.window, 0, v.found == l and v or v.found == nil and v or nil)
      else
        v.gone, v.left = 0, 0
      end
      if not drop or v.gone < drop then
        drop, dropped = v.gone, v.left
      end
    end
    local spare = math.max(50, math.floor(most / 4)) -- units may be given back
    if l.width == 1 and entries - drop > most + spare then
      drop = entries - most - spare
      dropped = drop
    end
    if drop > 0 then
      redis.call('LTRIM', l.key, drop * l.width, '-1')
      l.units = l.units - dropped
    end

    local named = l.mine > 0 and l.limits or l.width == 1 and ':' or '|'
    local head = {l.width == 1 and string.format('%s%.0f', named, l.base)
      or string.format('%s%.0f %.0f %.0f', named, l.grain, l.birth, l.units)}
    local tail = {}
    for n, v in ipairs(l.views) do
      local gone, left = math.max(v.gone - drop, 0), math.max(v.left - dropped, 0)
      if n > l.mine then
        tail[#tail + 1] = string.format('%.0f,%.0f,%.0f,%.0f,%.0f', v.max, v.window / 1000, gone, left,
          math.ceil(v.named / 1000))
      elseif l.width == 2 then
        head[#head + 1] = string.format('%.0f %.0f', gone, left)
      else
        head[#head + 1] = string.format('%.0f', gone)
      end
    end
    local text = table.concat(head, ' ')
    if both == 2 or #tail > 0 or l.width == 2 and l.mine > 1 then
      local room = both == 2 and 0 or l.width == 2 and (l.mine > 1 and 0 or 1) or most + 2 * spare
      text = text .. string.format(';%.0f %.0f %.0f ', math.ceil((l.ends or now + longest) / 1000), room,
        math.ceil(longest / 1000)) .. table.concat(tail, ' ')
    end
    redis.call('LSET', l.key, '0', text)
    l.lives = l.grain + longest * 2.25
  end
end
-- A log that is gone before the other one would be made from it.
for _, l in ipairs(logs) do
  if l.lives then
    local lives = both == 2 and math.max(logs[1].lives, logs[2].lives) or l.lives
    redis.call('PEXPIRE', l.key, math.ceil(lives / 1000) + 1000)
  end
end
return {1, remaining, now, binding, resets - now}
