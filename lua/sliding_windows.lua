-- Sliding windows: at most `max` units in any `window`, for several limits at once, all or nothing; and for
-- limits that count by parts of their window. Each limit has a log, in one of two forms:
--   one by one  as in sliding_window.lua, which decides a single limit of this kind on the same log
--   by parts    the log begins with a text of three numbers: the moment of its birth in microseconds since
--               1970, the microseconds of a part, the units in the log. Two numbers follow for each part of
--               the window in which units were taken, oldest first: the part's number since the birth's, and
--               how many units it has. Units count as taken at the end of their part
-- A unit leaves when its window is over. A refused attempt takes no units; it writes only to drop numbers
-- that left long ago, many at once.
--
-- Any attempt makes a log anew that has another form than the limit has now, or other parts, or units of the
-- future: the clock was set back. Such units count as taken now, since nobody knows how long before now they
-- were taken. And any attempt adds to a log the units of the other logs that are certainly newer than its own
-- and younger than its window: its limit is new, or was left out when they were taken.
--
-- KEYS  1 log            list; further limits have their logs in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on. An empty
--                        max marks a limit of the past, whose log the others take units from; these come last
--       then cost        units that this attempt takes, no more than the smallest max; absent or empty: 1; 0:
--                        take none, and answer whether one unit would be allowed
--       then now         microseconds since 1970; absent or empty: the server's clock
--       then part, ...   for each limit, the microseconds of a part, or 0 to count one by one; absent: all
--                        one by one
-- Returns {1, remaining, stamp, limit, resets} when allowed, else {0, remaining, retry, limit}
--       remaining  units left in the binding limit; below 0 when its max was lowered below the units in the
--                  log
--       stamp      the moment of admission in microseconds, for sliding_window_refund
--       retry      microseconds until the same cost fits every limit
--       limit      the binding limit, from 1: the one with the fewest units left; when refused, the one that
--                  is full for the longest time
--       resets     microseconds until the next unit leaves the binding limit; 0 when there is none

local limits = #KEYS
local cost, now = tonumber(ARGV[limits * 2 + 1]) or 1, tonumber(ARGV[limits * 2 + 2])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

local function grain_of(window)
  return window > 26843545600 and math.ceil(window / 268435456) or 100
end

-- Appends numbers to a log. A call takes only so many arguments.
local function push(log, numbers)
  for from = 1, #numbers, 1000 do
    redis.call('RPUSH', log, unpack(numbers, from, math.min(from + 999, #numbers)))
  end
end

-- Reads the beginning and the end of a log. A log of the past has the form that it has.
local function read(l)
  l.numbers, l.birth = redis.call('LRANGE', l.log, '0', l.part > 0 and '4' or '1'), nil
  local text = l.numbers[1]
  if text then
    l.birth, l.had, l.units = tonumber(text), 0, nil
    if not l.birth then -- of three numbers
      local birth, had, units = string.match(text, '^(%d+) (%d+) (%d+)$')
      l.birth, l.had, l.units = birth + 0, had + 0, units + 0
    end
    if not l.max then
      l.part = l.had
      l.grain = l.had > 0 and l.had or grain_of(l.window)
    end
    l.base = math.ceil(l.birth / l.grain)
    if l.part > 0 then
      l.last = redis.call('LRANGE', l.log, '-2', '-1')
      l.newest = (l.base + l.last[1]) * l.grain
    else
      l.newest = (l.base + redis.call('LINDEX', l.log, '-1')) * l.grain
    end
  end
end

-- The moment from which on a unit of another log is certainly news to a log: the log has none so late, and it
-- has not had it and dropped it, as all units that are older than its window.
local function news(l)
  local oldest = now - l.window
  return l.birth and l.newest > oldest and l.newest or oldest
end

-- Makes a log anew, in the form that its limit has now, and with the units of another log, if one is given,
-- that are certainly newer than its own. A log one by one needs the newest 10,000 units only: no limit of
-- that kind is larger.
local function remake(l, other)
  local grain, at, birth = l.grain, math.ceil(now / l.grain), nil -- birth: of the oldest of the logs
  local moments, counts, runs, units = {}, {}, 0, 0
  local function add(log, window, newest)
    if not log.birth then
      return
    end
    local from, width = log.had > 0 and log.had or grain_of(log.window), log.had > 0 and 2 or 1
    local base, old, before = math.ceil(log.birth / from), redis.call('LRANGE', log.log, '1', '-1'), runs
    for n = 1, #old, width do
      local taken, count = (base + old[n]) * from, width == 2 and old[n + 1] + 0 or 1
      if taken + window > now and taken - from >= newest and count > 0 then
        local moment = math.min(math.ceil(taken / grain), at)
        if moments[runs] ~= moment then
          runs = runs + 1
          moments[runs], counts[runs] = moment, 0
        end
        counts[runs], units = counts[runs] + count, units + count
      end
    end
    if before < runs then
      birth = math.min(birth or log.birth, log.birth)
    end
  end
  add(l, l.window, -now)
  if other then
    local own = units
    add(other, math.min(l.window, other.window), news(l))
    if units == own then -- what was newer was given back
      return
    end
  end

  redis.call('DEL', l.log)
  if units > 0 then
    birth = math.min(math.max(birth, now - 1073741824 * grain), now) -- four windows ago, where it is older
    local base, text, numbers = math.ceil(birth / grain), string.format('%.0f', birth), {}
    if l.part > 0 then
      text = string.format('%.0f %.0f %.0f', birth, l.part, units)
      for n = 1, runs do
        numbers[n * 2 - 1], numbers[n * 2] = moments[n] - base, counts[n]
      end
    else
      local excess = math.max(units - 10000, 0)
      for n = 1, runs do
        local skip = math.min(excess, counts[n])
        excess = excess - skip
        for _ = skip + 1, counts[n] do
          numbers[#numbers + 1] = moments[n] - base
        end
      end
    end
    redis.call('RPUSH', l.log, text)
    push(l.log, numbers)
    redis.call('PEXPIRE', l.log, math.ceil((moments[runs] * grain - now + l.window * 2.25) / 1000) + 1000)
  end
  read(l)
end

local binding, remaining, retry
-- What is known of each log: its limit; its form, and the one that it had; its birth, the number of the
-- birth's grain or part, units by parts, the newest part and its units, and its end; now in grains or parts;
-- numbers of what has left; when the head leaves, and the next unit, nil without one; and whether its TTL is
-- to be renewed.
local logs = {}
local latest = -1 / 0 -- of the moments at which logs certainly have units, which others may lack

for i = 1, limits do
  local window, part = ARGV[i * 2] * 1000, (ARGV[limits * 2 + 2 + i] or 0) + 0
  local max = ARGV[i * 2 - 1]
  local l = {log = KEYS[i], max = max ~= '' and max + 0 or nil, window = window, part = part, gone = 0,
    grain = part > 0 and part or grain_of(window),
    numbers = nil, birth = nil, had = nil} -- of nine fields a table has room for all: to grow it costs more
  logs[i] = l
  read(l)
  local at = math.ceil(now / l.grain)
  l.at = at
  if l.birth and (l.had ~= l.part or l.newest > at * l.grain or at - l.base > 2147483647) then
    remake(l)
  end
  if l.birth and l.newest - l.grain > latest then
    latest = l.newest - l.grain
  end
end

-- The log with the longest window comes first: it has most of what a log lacks. Logs that the same attempts
-- have written lack nothing, which costs no command.
for i = 1, limits > 1 and limits or 0 do
  local l, from = logs[i], nil
  local wants = l.max and latest >= news(l)
  while wants do
    local longest = from and from.window or 1 / 0
    from = nil
    for j = 1, limits do
      local other = logs[j]
      if j ~= i and other.birth and other.newest - other.grain >= news(l)
        and other.newest + math.min(l.window, other.window) > now
        and other.window < longest and (not from or other.window > from.window) then
        from = other
      end
    end
    wants = from ~= nil
    if from then
      remake(l, from)
      latest = math.max(latest, l.birth and l.newest - l.grain or latest)
    end
  end
end

for i = 1, limits do
  local l, max = logs[i], logs[i].max
  if not max then
    break
  end
  local log, window, part, grain, numbers = l.log, l.window, l.part, l.grain, l.numbers
  local birth, units, base = l.birth, l.units, l.base
  local count, gone, next = 0, 0, nil
  local leaves, lacks = nil, nil -- when the next unit leaves, and when enough units will have left
  if birth and part == 0 then
    count = redis.call('LLEN', log) - 1
    next = (base + numbers[2]) * grain + window
    if next <= now then
      -- shared window_gone
      -- Usually one unit has left. After a pause many have; they are read in chunks.
      local first, unit, chunk = next, nil, nil
      repeat
        gone = gone + 1
        if gone == 1 then
          unit = redis.call('LINDEX', log, '2')
        else
          if gone % 50 == 2 then
            chunk = redis.call('LRANGE', log, gone + 1, gone + 50)
          end
          unit = chunk[(gone - 2) % 50 + 1]
        end
        next = unit and (base + unit) * grain + window
      until not next or next > now
      local moved = not next or math.floor(first / window * 4) ~= math.floor(next / window * 4)
      -- end window_gone
      count, l.gone, l.renew = count - gone, gone, moved
    end
    l.resets = next
    local lacking = need - max + count
    lacks = next
    if lacking > 1 then
      lacks = (base + redis.call('LINDEX', log, gone + lacking)) * grain + window
    end
  elseif birth then
    count = units
    -- shared parts_head
    -- Usually the first two parts are enough. After a pause more are needed; they are read in growing chunks.
    local from, size = 0, 4
    local function number(n)
      if n >= from + #numbers then
        size, from = math.min(size * 2, 128), n - (n + 1) % 2 -- a chunk has whole pairs
        numbers = redis.call('LRANGE', log, from, from + size - 1)
      end
      return numbers[n - from + 1]
    end
    local first = number(1)
    while first and (base + first) * part + window <= now do
      count, gone = count - number(gone + 2), gone + 2
      first = number(gone + 1)
    end
    next = first and (base + first) * part + window
    local lacking, n = need - max + count, gone
    if count > 0 then
      while number(n + 2) == '0' do -- all units of the part were given back
        n = n + 2
      end
      leaves = (base + number(n + 1)) * part + window
    end
    while lacking > 0 do
      lacks = (base + number(n + 1)) * part + window
      lacking, n = lacking - number(n + 2), n + 2
    end
    -- end parts_head
    l.resets, l.units, l.gone = leaves, count, gone
  end
  l.next = next

  local left = max - count
  local wait = left < need and lacks - now
  -- shared binding_limit
  if wait then
    if not retry or wait > retry then
      binding, remaining, retry = i, left, wait
    end
  elseif not retry and (not binding or left - cost < remaining) then
    binding, remaining = i, left - cost
  end
  -- end binding_limit
end

-- As in sliding_window.lua.
local function renewal(head, window)
  return math.ceil((head - now + window * 1.25) / 1000) + 1000
end

local function header(l)
  return l.part > 0 and string.format('%.0f %.0f %.0f', l.birth, l.part, l.units) or l.numbers[1]
end

if retry then
  for i = 1, cost > 0 and limits or 0 do
    local l = logs[i]
    if l.gone > 50 then
      if l.next then
        redis.call('LTRIM', l.log, l.gone, '-1')
        redis.call('LSET', l.log, '0', header(l))
        redis.call('PEXPIRE', l.log, renewal(l.next, l.window))
      else
        redis.call('DEL', l.log)
      end
    end
  end
  return {0, remaining, retry, binding}
end
if cost == 0 then
  local resets = logs[binding].resets
  return {1, remaining, now, binding, resets and resets - now or 0}
end

for i = 1, limits do
  local l = logs[i]
  if not l.max then
    break
  end
  local log, window, part, grain, gone, next = l.log, l.window, l.part, l.grain, l.gone, l.next
  local numbers = l.numbers
  if part == 0 then
    local birth, base = numbers[1], l.base
    local at = l.at
    -- shared window_push
    -- The first command is one that a full Redis refuses. The place of the last unit that has left is the
    -- header's then. A number as text is cheaper than one that redis.call makes a text of.
    local unit = string.format('%d', next and at - base or 0)
    if next then
      redis.call('RPUSH', log, unit)
    else
      redis.call('RPUSH', log, now, unit)
    end
    if cost > 1 then
      local units = {}
      for n = 1, math.min(cost - 1, 1000) do -- a call takes only so many arguments
        units[n] = unit
      end
      for from = 2, cost, 1000 do
        redis.call('RPUSH', log, unpack(units, 1, math.min(cost - from + 1, 1000)))
      end
    end
    if not next then
      if gone > 0 then
        redis.call('LTRIM', log, gone + 1, '-1')
      end
    elseif gone > 0 then
      if gone == 1 then
        redis.call('LPOP', log)
      else
        redis.call('LTRIM', log, gone, '-1')
      end
      redis.call('LSET', log, '0', birth)
    end
    -- end window_push
    next = next or at * grain + window
    l.resets = next
    if l.renew or not l.birth then
      redis.call('PEXPIRE', log, renewal(next, window))
    end
  else
    local at = l.at
    l.resets = l.resets or at * part + window
    l.units, l.birth = (l.birth and l.units or 0) + cost, next and l.birth or now
    local head, base, last, newest = header(l), l.base, l.last, next and l.base + l.last[1]
    -- shared parts_push
    if not next then -- as in window_push
      redis.call('RPUSH', log, head, '0', cost)
      if gone > 0 then
        redis.call('LTRIM', log, gone + 1, '-1')
      end
    else
      if newest == at then
        redis.call('LSET', log, '-1', last[#last] + cost)
      else
        redis.call('RPUSH', log, at - base, cost)
      end
      if gone > 0 then
        redis.call('LTRIM', log, gone, '-1')
      end
      redis.call('LSET', log, '0', head)
    end
    if not next or newest ~= at then
      redis.call('PEXPIRE', log, math.ceil((at * part + window - now) / 1000) + 1000)
    end
    -- end parts_push
  end
end
return {1, remaining, now, binding, logs[binding].resets - now}
