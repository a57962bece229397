-- Sliding windows: at most `max` units in any `window`, for any limits, all or nothing, whatever other limits
-- the same actor has been asked about: those of another release, or of another tier. It decides what
-- sliding_window and sliding_parts leave, on their logs, and gives the same answers.
--
-- Limits that count one by one have a log, and limits that count by parts another one. As long as both are
-- asked for, each has all units; one alone has the first key. A limit is a view of its log. A unit of which
-- is noted that it has left all windows of its log counts for nobody again, also where it is not dropped yet,
-- and a longer window is asked for. Limits of other
-- attempts stay in the header, behind a semicolon: for each window the largest max, how many entries have
-- left, and their units, and when it was asked for last, in milliseconds. In front of them stand: until when
-- the short scripts may leave them as they are, in milliseconds, 0: not at all; how many entries the log may
-- have meanwhile; and the longest window. A limit stays for a window and a quarter after it was asked for, as
-- long as it counts a unit. So the log keeps what it needs. There are 8 at most: the shortest is kept as a
-- part of the next longer one. A limit without a view finds its place by search. Where its own log does not
-- go back far enough, or has longer parts, the other one decides, and the next attempt that is noted makes
-- its own from that.
--
-- An attempt is noted when it is allowed. A refused one is noted when the log does not know its limits, or
-- has not heard of them for a quarter of the window; else it writes nothing.
--
-- A log keeps no more units than the largest max of its views and a quarter, 50 at least: older ones decide
-- nothing, unless so many are given back. Any attempt makes units of the future units of now: the clock was
-- set back, and nobody knows how long before now they were taken.
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
-- Returns "remaining stamp resets limit" when allowed, else {0, remaining, retry, limit}, as sliding_windows
--         does

local now, cost = tonumber(ARGV[3]), ARGV[4] + 0
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need, ms = cost > 0 and cost or 1, math.ceil(now / 1000)
local OTHERS = 8

-- A log: its entries are units or parts of them, of one or two numbers each. views are the limits of the
-- header, others those behind its semicolon.
local function read(key, text, width, limits)
  local l = {key = key, width = width, limits = limits, views = {}, others = {}, entries = 0, units = 0,
    keeps = -1}
  if not text then
    return l
  end
  local named, tail, numbers, n = nil, nil, {}, 0
  named, text, tail = string.match(text, '^(.-[:|])([%d ]+)(.*)$')
  for number in string.gmatch(text, '%d+') do
    numbers[#numbers + 1] = number + 0
  end
  local function each()
    n = n + 1
    return numbers[n]
  end
  l.exists, l.named = true, named
  l.grain = width == 2 and each() or 100
  l.birth = each() -- of the first log its base
  l.base = width == 2 and math.ceil(l.birth / l.grain) or l.birth
  l.entries = (redis.call('LLEN', key) - 1) / width
  l.units = width == 2 and each() or l.entries
  l.at = math.ceil(now / l.grain)
  for max, window in string.gmatch(named, '(%d+)/(%d+)[/%d]*') do
    local gone, second = each(), each() -- of the first log, when the next unit leaves
    l.views[#l.views + 1] = {max = max + 0, window = window * 1000, gone = gone,
      left = width == 2 and second or gone}
  end
  local soonest, room = string.match(tail, '^;(%d+) (%d+)')
  l.always, l.room = soonest == '0', room and room + 0
  for max, window, gone, left, moment in string.gmatch(tail, '(%d+),(%d+),(%d+),(%d+),(%d+)') do
    l.others[#l.others + 1] = {max = max + 0, window = window * 1000, gone = gone + 0, left = left + 0,
      named = moment + 0}
  end
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do -- for how long it keeps units
      l.keeps = math.max(l.keeps, v.window)
    end
  end
  local first = l.entries > 0 and redis.call('LINDEX', key, '1')
  l.newest = first and l.base + redis.call('LINDEX', key, -width) or l.base
  l.first = l.base + (first or 0)
  -- The numbers are longer than they need be.
  l.long = first and l.at - l.base > 2147483647 and first - 1073741824 > 0
  return l
end

-- Until when a limit stays that was named by an attempt at this millisecond, in milliseconds.
local function ends(v)
  return math.ceil(v.named + v.window / 800)
end

local function header(l)
  local text = {l.width == 1 and string.format('%s%.0f', l.named, l.base)
    or string.format('%s%.0f %.0f %.0f', l.named, l.grain, l.birth, l.units)}
  for _, v in ipairs(l.views) do
    text[#text + 1] = string.format('%d ', v.gone) .. (l.width == 2 and string.format('%d', v.left)
      or redis.call('LINDEX', l.key, v.gone + 1) or '0')
  end
  if l.room then
    -- The short script of parts adds to the newest entry, which must not have left for anybody.
    local soonest, longest = l.always and 0 or 1e15, 0
    for _, v in ipairs(l.views) do
      longest = math.max(longest, v.window)
    end
    for _, v in ipairs(l.others) do
      longest = math.max(longest, v.window)
      soonest = l.width == 2 and v.gone >= l.entries and 0 or math.min(soonest, ends(v))
    end
    text[#text] = text[#text] .. string.format(';%.0f %.0f %.0f', soonest, l.room, longest / 1000)
    for _, v in ipairs(l.others) do
      text[#text + 1] = string.format('%.0f,%.0f,%.0f,%.0f,%.0f', v.max, v.window / 1000, v.gone, v.left,
        v.named)
    end
  end
  redis.call('LSET', l.key, '0', table.concat(text, ' '))
end

-- The clock was set back: units of the future become units of now.
local function setBack(l)
  local base = math.min(l.base, l.at)
  l.birth = l.width == 1 and base or l.birth
  if l.width == 2 then -- what was taken before the first entry is not in the log
    l.birth = math.min(math.max(l.birth, (l.first - 1) * l.grain), now)
    base = math.ceil(l.birth / l.grain)
  end
  for place = (l.entries - 1) * l.width + 1, 1, -l.width do
    local number = l.base + redis.call('LINDEX', l.key, place)
    if number <= l.at and base == l.base then
      break
    end
    redis.call('LSET', l.key, place, string.format('%.0f', math.min(number, l.at) - base))
  end
  l.base, l.newest = base, l.at
  for _, v in ipairs(l.others) do
    v.named = math.min(v.named, ms)
  end
  header(l)
  redis.call('PEXPIRE', l.key, math.ceil((l.grain + l.keeps * 2.25) / 1000) + 1000)
end

-- How many entries have left a window, and their units, as far as it is noted. A window can be in the header
-- twice: for the attempt that was noted last, and for others.
local function viewOf(l, window)
  local known
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do
      if v.window == window and (not known or v.gone > known.gone) then
        known = v
      end
    end
  end
  return known
end

-- How many entries have left all windows of a log, and their units, as far as it is noted.
local function leftAll(l)
  local all
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do
      local known = viewOf(l, v.window)
      all = all and all.gone <= known.gone and all or known
    end
  end
  return all
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
  local gone, left = view and view.gone or 0, view and view.left or 0
  local low, high, step = gone, l.entries + 1, 1
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
  if l.width == 1 then
    return low, low
  end
  for from = gone, low - 1, 100 do
    local numbers = redis.call('LRANGE', l.key, from * 2 + 1, math.min(from + 100, low) * 2)
    for n = 2, #numbers, 2 do
      left = left + numbers[n]
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
      units, leave = units - numbers[n + 1], leaves(l, numbers[n], window, part)
      if units <= 0 then
        return leave
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
for _, l in ipairs(logs) do
  if l.entries > 0 and l.newest > l.at then
    setBack(l)
  end
end

local binding, remaining, retry, resets
local views, grains = {{}, {}}, {100} -- of this attempt, by log; the grain of a log that is made anew
local noted = false -- whether this attempt has to be noted although it is refused
for i = 1, (#ARGV - 4) / 3 do
  local max, window, part = ARGV[2 + i * 3] + 0, ARGV[3 + i * 3] * 1000, ARGV[4 + i * 3] + 0
  local which = part > 0 and 2 or 1
  local own, other, heard = logs[which], logs[3 - which], false
  if part > 0 then
    grains[2] = math.min(grains[2] or part, part)
  end
  for _, v in ipairs(own.views) do
    heard = heard or v.window == window and v.max >= max
  end
  for _, v in ipairs(own.others) do
    heard = heard or v.window == window and v.max >= max and v.named * 1000 + window / 4 > now
  end
  noted = noted or not heard
  local log = own
  if not own.exists or other.exists and (own.keeps < math.min(window, other.keeps)
    or part > 0 and part < own.grain and own.keeps <= other.keeps) then
    log, own.anew, own.over = other, true, leftAll(other)
  end
  local gone, out = 0, 0
  if log.entries > 0 then
    gone, out = advance(log, window, part, viewOf(log, window) or leftAll(log))
  end
  table.insert(views[which], {limit = i, max = max, window = window, gone = gone, left = out, found = log})
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
  if binding == i then
    resets = next or now
  end
end
local function reply()
  return retry and {0, remaining, retry, binding}
    or string.format('%d %d %d %d', remaining, now, resets - now, binding)
end
if cost == 0 or retry and not noted then
  return reply()
end
if retry then
  cost = 0
end

-- Adds numbers to the end of a list. A call takes only so many arguments.
local function push(key, numbers)
  for from = 1, #numbers, 1000 do
    redis.call('RPUSH', key, unpack(numbers, from, math.min(from + 999, #numbers)))
  end
end

-- Makes a log anew from the entries of one, in grains of another length. Views of the same log keep their
-- places, so entries of one moment stay apart where one of them stands between; in another log places are
-- found by search, and what has left all windows of the other one is not in it.
local function remake(l, from, grain, longest)
  local old = redis.call('LRANGE', from.key, '1', '-1')
  local birth, at, most, places = nil, math.ceil(now / grain), 0, {}
  for _, list in ipairs({l.views, l.others, l.own}) do
    for _, v in ipairs(list) do
      most = math.max(most, v.max)
      if from == l and (v.found or l) == l then
        places[v.gone] = places[v.gone] or {}
        table.insert(places[v.gone], v)
      else
        v.gone, v.left = 0, 0
      end
    end
  end
  local numbers, units, entries, last = {}, 0, 0, nil
  local over, spare = from ~= l and l.over or {gone = 0, left = 0}, math.max(50, math.floor(most / 4))
  local skip = l.width == 1 and from.width == 2 and math.max(from.units - over.left - most - spare, 0) or 0
  for n = over.gone * from.width + 1, #old, from.width do
    local number, count = from.base + old[n], from.width == 2 and old[n + 1] + 0 or 1
    local moment = math.min(math.ceil(number * from.grain / grain), at)
    local skipped = math.min(skip, count)
    skip, count = skip - skipped, count - skipped
    if count > 0 and (from == l or moment * grain + longest > now) then
      birth, units = birth or (number - 1) * from.grain, units + count
      if l.width == 1 then
        for _ = 1, count do
          numbers[#numbers + 1] = moment
        end
        entries = #numbers
      elseif last == moment then
        numbers[#numbers] = numbers[#numbers] + count
      else
        numbers[#numbers + 1], numbers[#numbers + 2] = moment, count
        entries = entries + 1
      end
      last = moment
    end
    local place = (n - 1) / from.width + 1
    if places[place] then
      last = nil
      for _, v in ipairs(places[place]) do
        v.gone, v.left = entries, units
      end
    end
  end
  redis.call('DEL', l.key)
  birth = math.min(math.max(birth or now, from.width == 2 and from.birth or 0), now)
  l.birth = l.width == 2 and birth or numbers[1] or at
  l.exists, l.grain, l.at = entries > 0, grain, at
  l.base = l.width == 2 and math.ceil(birth / grain) or l.birth
  l.units, l.entries, l.newest = units, entries, numbers[#numbers + 1 - l.width]
  for n = 1, #numbers, l.width do
    numbers[n] = string.format('%.0f', numbers[n] - l.base)
  end
  if entries > 0 then
    redis.call('RPUSH', l.key, '')
    push(l.key, numbers)
  end
end

-- The limits of this attempt are those of the header of its log, and others stay as they are: then the short
-- scripts only count how many have left, and so does this one.
local function unchanged(l, own, other)
  if other.exists or #other.own > 0 or not l.exists or #l.others == 0 or #own ~= #l.views
    or l.width == 1 and l.entries >= l.room then
    return false
  end
  for _, o in ipairs(own) do
    local same = false
    for _, v in ipairs(l.views) do
      same = same or v.window == o.window and v.max == o.max
    end
    if not same then
      return false
    end
  end
  for _, v in ipairs(l.others) do
    if now >= ends(v) * 1000 then
      return false
    end
  end
  return true
end

-- The limits of other attempts that stay: those that were asked for within their time, and now those of the
-- header, as far as this attempt has no larger ones.
local function remember(l, own)
  local kept = {}
  local function keep(v, named)
    local gone, left = v.gone, v.left
    for _, o in ipairs(own) do
      if o.window == v.window then
        if o.max >= v.max then
          return
        elseif o.found == l and o.gone > gone then -- what has left has left, also by other parts
          gone, left = o.gone, o.left
        end
      end
    end
    for _, k in ipairs(kept) do
      if k.window == v.window then
        k.max, k.named = math.max(k.max, v.max), math.max(k.named, named)
        if gone > k.gone then
          k.gone, k.left = gone, left
        end
        return
      end
    end
    kept[#kept + 1] = {max = v.max, window = v.window, gone = gone, left = left, named = named}
  end
  for _, v in ipairs(l.others) do
    if now < ends(v) * 1000 then
      keep(v, v.named)
    end
  end
  for _, v in ipairs(l.views) do
    keep(v, ms)
  end
  return kept
end

-- Leaves out limits that count no unit, and makes the shortest ones a part of the next longer one.
local function bound(l)
  local kept = {}
  for _, v in ipairs(l.others) do
    if v.left < l.units then
      kept[#kept + 1] = v
    end
  end
  table.sort(kept, function(a, b)
    return a.window < b.window
  end)
  while #kept > OTHERS do
    local short = table.remove(kept, 1)
    kept[1].max, kept[1].named = math.max(kept[1].max, short.max), math.max(kept[1].named, short.named)
  end
  l.others = kept
end

-- The log by parts has the second key while there is another one.
local function move(l, key)
  if l.key ~= key and l.exists then
    redis.call('RENAME', l.key, key)
  end
  l.key = key
end

for which, l in ipairs(logs) do
  l.own = views[which]
end
for which, l in ipairs(logs) do
  l.still = unchanged(l, l.own, logs[3 - which])
  if not l.still then
    l.others = remember(l, l.own)
  end
  l.longest = 0
  for _, list in ipairs({l.own, l.others}) do
    for _, v in ipairs(list) do
      l.longest = math.max(l.longest, v.window)
    end
  end
end
local longest = math.max(logs[1].longest, logs[2].longest)
for _, l in ipairs(logs) do
  if retry and l.exists then -- a full Redis accepts this, and then what follows
    redis.call('PEXPIRE', l.key, math.ceil((l.grain + longest * 2.25) / 1000) + 1000)
  end
end
if logs[1].longest > 0 then
  move(logs[2], KEYS[2])
end
for which, l in ipairs(logs) do
  local other, grain = logs[3 - which], grains[which]
  if l.longest > 0 then
    -- Each time rounds up, so two releases in turn must not do it in turn: to longer parts only for room.
    if (l.anew or not l.exists) and other.exists then
      remake(l, other, math.min(l.exists and l.grain or grain, grain or l.grain), longest)
    elseif not l.exists then
      l.grain, l.at = grain, math.ceil(now / grain)
      l.base = l.at
      l.birth = l.width == 2 and now or l.base
    elseif l.long or grain and (grain < l.grain or grain > l.grain and l.entries > 10000) then
      remake(l, l, grain or l.grain, longest)
    end
  end
end

local kept = {}
for _, l in ipairs(logs) do
  for _, v in ipairs(l.own) do
    if l.entries > 0 then
      v.gone, v.left = advance(l, v.window, 0, v.found == l and v or nil)
    else
      v.gone, v.left = 0, 0
    end
  end
  if not l.still then
    for _, v in ipairs(l.others) do
      if l.entries > 0 then
        v.gone, v.left = advance(l, v.window, 0, v)
      end
    end
    bound(l)
  end
  local counts = cost > 0
  for _, v in ipairs(l.own) do
    counts = counts or v.gone < l.entries
  end
  if #l.others > 0 or #l.own > 0 and counts then -- else nobody asks for it, or it has no unit
    kept[#kept + 1] = l
  elseif l.exists then
    redis.call('DEL', l.key)
    l.exists = false
  end
end
if #kept == 1 then
  move(kept[1], KEYS[1])
end

local lives = 0
for _, l in ipairs(kept) do
  l.views = l.own
  local drop, dropped, most, longest = l.entries, l.units, 0, 0
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do
      longest, most = math.max(longest, v.window), math.max(most, v.max)
      if v.gone < drop then
        drop, dropped = v.gone, v.left
      end
    end
  end
  local spare = math.max(50, math.floor(most / 4)) -- units may be given back
  if l.still then
    drop, dropped = 0, 0
  elseif l.width == 1 and l.entries + cost - drop > most + spare then
    drop = l.entries + cost - most - spare
    dropped = drop
  end
  local fresh, gone = cost > 0 and drop == l.entries, false
  if fresh then -- none counts any more, so the log begins anew
    l.birth, l.grain = now, #l.views > 0 and grains[l.width] or l.grain
    l.at = math.ceil(now / l.grain)
    l.base = l.at
  end
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do
      gone = gone or v.gone >= l.entries
    end
  end
  local numbers, pushed = {}, 0
  if cost > 0 and l.width == 2 and not gone and l.newest == l.at then
    redis.call('LSET', l.key, '-1', string.format('%.0f', redis.call('LINDEX', l.key, '-1') + cost))
  elseif cost > 0 then
    if not l.exists then
      numbers[1] = ''
    end
    local number = string.format('%.0f', l.at - l.base)
    if l.width == 2 then
      numbers[#numbers + 1], numbers[#numbers + 2], pushed = number, string.format('%.0f', cost), 1
    else
      for _ = 1, cost do
        numbers[#numbers + 1] = number
      end
      pushed = cost
    end
    push(l.key, numbers)
  end
  if drop > 0 then
    redis.call('LTRIM', l.key, drop * l.width, '-1')
  end
  l.entries, l.units = l.entries + pushed - drop, l.units + cost - dropped
  if l.width == 2 then
    l.birth = math.min(l.birth, now) -- the clock may have been set back within a part
  end
  for _, list in ipairs({l.views, l.others}) do
    for _, v in ipairs(list) do
      v.gone, v.left = math.max(v.gone - drop, 0), math.max(v.left - dropped, 0)
    end
  end
  l.named = #l.views > 0 and l.limits or l.width == 1 and ':' or '|'
  l.always, l.room = #kept == 2, nil
  if l.always or #l.others > 0 then
    l.room = l.width == 1 and most + 2 * spare or 0
  end
  header(l)
  for _, v in ipairs(l.views) do
    if v.limit == binding and not retry then -- its log may be another one now
      local lacks = remaining + 1 - v.max + l.units - v.left
      resets = lacks > 0 and lacking(l, v.gone, lacks, v.window, 0) or now
    end
  end
  lives = math.max(lives, l.grain + longest * 2.25)
end
-- A log that is gone before the other one would be made from it.
for _, l in ipairs(kept) do
  redis.call('PEXPIRE', l.key, math.ceil(lives / 1000) + 1000)
end
return reply()
