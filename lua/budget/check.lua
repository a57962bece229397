-- Budget: decides an attempt against all limits of a path, such as an organisation, its team and its user.
-- All fit, or nothing is taken. A refused attempt writes nothing, with two exceptions. It notes that its
-- windows were asked for, once in a quarter of a window, so that the log keeps what they need. And it notes
-- units that have left, and drops them, when that saves the next attempt a walk over more than 128 entries.
--
-- KEYS  1 root   hash: node -> override, "until id text|what w<window>=<max> ...": window 0 is the period;
--                !node -> pause, "until id on|what"; "=" -> the sequence of the last change. control/set
--                writes the first two
--       2 rows   sorted set: node -> the sequence of its last change, for exports
--       3 calls  string: the last 64 calls of the last level, see below. It lives for two minutes
--       then for each level that is present, the outermost first:
--       log      list: "part base late units entries" and "|window gone left next until" for each window,
--                then the entries: n, a unit in part base + n, or n*c, c units. Each window is a view of the
--                log: how many entries at its head have left it, their units, when the next one leaves (0:
--                unknown), and until when it is kept. late is the moment of the last unit
--       node     hash: p -> "begins ends used told sequence first restored" of the period in force, which
--                lasts until it ends, whatever the plan says; "begins ends" -> "used sequence first
--                restored" of ended ones. told is the alerts of the last four Max, "max:percent,…"; 0: none
-- ARGV  1 cost   units; 0: none, and answer whether one would be allowed
--       2 call   the name of this call, 6 characters
--       3 force  0; 1 when the units are spent already: they are taken whatever is left; the name of the
--                attempt's call when, besides, an earlier sending of that may have run
--       4 keep   milliseconds for which periods that have ended are kept
--       5 now    microseconds since 1970; absent or empty: the server's clock
--       then for each level that is present
--       name     of the node, without spaces, and then "!" and the name
--       then for each level that is present
--       windows  "part max/window ...", microseconds, units, milliseconds; a unit counts as taken at the end
--                of its part. Empty: none
--       period   "max over begins ends", units, percent beyond max (-1: no end), milliseconds. Empty: none
-- Returns {reason, stamp, sequence, then for each limit, a level's windows before its period: its max, the
--         units that count, for how many microseconds it refuses the attempt, and those until it has a unit
--         more; then for each alert level, percent, max}, or {reason, stamp, level, wait}
--         reason    ok, limited (a window or a period), or one of the short form: paused (microseconds; 0:
--                   for ever), period (the stamp is not in the period of the level), gone (the call was
--                   undone before it arrived)
--         stamp     the moment of the decision, microseconds
--         sequence  that of the last change, 0 where nothing has a period. It is the time in microseconds,
--                   or one more than that of the change before, so it grows after a loss of data too
--         A period's max is where it ends, if it ends anywhere. first is the sequence that its count began
--         with, and restored the units of used that were not counted since, but restored.
--
-- calls has words of 24 characters: "<call><state><stamp> ", where the state is + for one that ran, = for one
-- that was settled, and - for one that was undone before it arrived.

local root, rows, names, count = KEYS[1], KEYS[2], KEYS[3], (#KEYS - 3) / 2
local cost, call, force, keep = ARGV[1] + 0, ARGV[2], ARGV[3] ~= '0', ARGV[4] + 0
local now = tonumber(ARGV[5])
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

-- What has been decided for a node: its override and its pause, as long as they are not over.
local decided, overridden = redis.call('HMGET', root, '=', unpack(ARGV, 6, 5 + 2 * count)), false
local today = math.floor(now / 1000)
for i = 1, count do
  local override, paused = decided[2 * i], decided[2 * i + 1]
  local ends = paused and not force and string.match(paused, '^(%d+) %d+ on')
  if ends and (ends == '0' or ends + 0 > today) then
    return {'paused', now, i, ends == '0' and 0 or (ends - today) * 1000}
  end
  if override then
    ends = string.match(override, '^%d+') + 0
    decided[2 * i] = (ends == 0 or ends > today) and override
    overridden = overridden or decided[2 * i]
  end
end

-- Time never runs backwards along a path: below the last unit of a log its moment counts, and before the
-- period in force its first moment does, so that no clock that is set back gives anybody two.
local levels = {}
for i = 1, count do
  local windows, period = ARGV[2 * count + 2 * i + 4], ARGV[2 * count + 2 * i + 5]
  local l = {log = KEYS[2 * i + 2], node = KEYS[2 * i + 3], windows = windows, period = period, was = false,
    p = false, views = {}, part = 0, base = 0, late = 0, units = 0, entries = 0, at = 0}
  levels[i] = l
  if period ~= '' then
    local found = redis.call('HGET', l.node, 'p')
    if found then
      local begins, ends, used, told, began = string.match(found, '^(%d+) (%d+) (%d+) (%S+) %d+ (.*)$')
      l.was = {begins = begins + 0, ends = ends + 0, used = used + 0, told = told, began = began}
      now = math.max(now, l.was.begins * 1000)
    end
  end
  local header = windows ~= '' and redis.call('LINDEX', l.log, '0')
  if header then
    local part, base, late, units, entries, views = string.match(header,
      '^(%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
    l.header, l.part, l.base, l.late, l.units, l.entries = header, part + 0, base + 0, late + 0, units + 0,
      entries + 0
    for window, gone, left, next, ends in string.gmatch(views, '(%d+) (%d+) (%d+) (%d+) (%d+)') do
      l.views[#l.views + 1] = {window = window, gone = gone + 0, left = left + 0, next = next + 0,
        ends = ends, asked = false}
    end
    now = math.max(now, l.late)
  end
end
local milli = math.floor(now / 1000)

-- Calls f for the entries of a log behind the first ones, with their place, part and units, until it returns
-- true.
local function walk(l, from, f)
  local step = 1
  while from < l.entries do
    for n, text in ipairs(redis.call('LRANGE', l.log, from + 1, from + step)) do
      local part, units = string.match(text, '^(%d+)%*?(%d*)$')
      if f(from + n, part + 0, units == '' and 1 or units + 0) then
        return
      end
    end
    from, step = from + step, math.min(step * 8, 128)
  end
end

local reply, size, walked, periods, alerts = {'ok', now, 0}, 3, 0, false, nil
for i, l in ipairs(levels) do
  local override = decided[2 * i]
  if l.windows ~= '' then
    if l.entries == 0 then
      l.part = string.match(l.windows, '^%d+') + 0
      l.base = math.ceil(now / l.part)
    end
    l.at = math.ceil(now / l.part)
    for max, window in string.gmatch(l.windows, '(%d+)/(%d+)') do
      max = (override and string.match(override, ' w' .. window .. '=(%d+)') or max) + 0
      local length, view = window * 1000, nil
      for _, v in ipairs(l.views) do
        if v.window == window then
          view = v
        end
      end
      if not view then
        view = {window = window, gone = 0, left = 0, next = 0, ends = '0', asked = false}
        l.views[#l.views + 1] = view
      end
      view.asked = true
      if view.next <= now then
        local before = view.gone
        view.next = 0
        if before < l.entries then
          walk(l, before, function(place, n, units)
            local leaves = (l.base + n) * l.part + length
            if leaves <= now then
              view.gone, view.left = place, view.left + units
            elseif units > 0 then
              view.next = leaves
              return true
            end
          end)
          walked = math.max(walked, view.gone - before)
        end
      end
      local used, wait = l.units - view.left, 0
      local lacking = used + need - max
      if lacking > 0 and not force then
        reply[1] = 'limited'
        if need > max then
          wait = -1
        elseif lacking == 1 then
          wait = view.next - now
        else
          walk(l, view.gone, function(_, n, units)
            lacking = lacking - units
            if lacking <= 0 then
              wait = (l.base + n) * l.part + length - now
              return true
            end
          end)
        end
      end
      reply[size + 1], reply[size + 2], reply[size + 3] = max, used, wait
      size = size + 4
      reply[size] = view.next > 0 and view.next - now or cost > 0 and l.at * l.part + length - now or 0
    end
  end
  if l.period ~= '' then
    local max, over, begins, ends = string.match(l.period, '^(%d+) (-?%d+) (%d+) (%d+)$')
    max = (override and string.match(override, ' w0=(%d+)') or max) + 0
    over, begins, ends = over + 0, begins + 0, ends + 0
    local hard = over < 0 and -1 or over == 0 and max or max + math.floor(max * over / 100)
    local p = l.was
    if not p or p.ends <= milli then
      if milli < begins or milli >= ends then
        return {'period', now, i, 0}
      end
      if not p or p.begins ~= begins or p.ends ~= ends then
        local had = redis.call('HGET', l.node, string.format('%d %d', begins, ends))
        local used, began = string.match(had or '', '^(%d+) %d+ (.*)$')
        p = {begins = begins, ends = ends, told = '0', used = (used or 0) + 0, began = began}
      end
    end
    l.p, periods = p, true
    local wait, resets = 0, math.max(p.ends * 1000 - now, 1)
    if hard >= 0 and p.used + need > hard and not force then
      wait = need > hard and -1 or resets
      reply[1] = 'limited'
    end
    reply[size + 1], reply[size + 2] = hard >= 0 and hard or max, p.used
    reply[size + 3], reply[size + 4] = wait, resets
    size = size + 4
    local after = p.used + cost
    local percent = after >= max and 100 or after * 5 >= max * 4 and 80 or 0
    if cost > 0 and percent > 0 then -- an alert belongs to the Max for which it was told
      local key = string.format(',%d:', max)
      local from, to, before = string.find(',' .. p.told, key .. '(%d+)')
      if percent > (before or 0) + 0 then
        local others = from and string.sub(p.told, 1, from - 1) .. string.sub(p.told, to + 1) or p.told
        p.told = string.match(string.sub(key, 2) .. percent .. ',' .. others, '^[^,]*,?[^,]*,?[^,]*,?[^,]*')
        alerts = alerts or {}
        alerts[#alerts + 1], alerts[#alerts + 2], alerts[#alerts + 3] = i, percent, max
      end
    end
  end
end

-- Until when a view is needed, in milliseconds, as far as this attempt knows. A unit: at the end of its part.
local function needed(l, v)
  return v.asked and milli + v.window + l.part / 1000 + 1 or milli
end

-- Notes that the windows of a refused attempt were asked for. What has left stays as it was noted: the clock
-- may be set back.
local function note(l)
  local header, lives = l.header, 0
  for _, v in ipairs(l.views) do
    local now_needed = v.asked and needed(l, v) or 0
    if now_needed > v.ends + 0 then
      local ends = string.format('%d', now_needed + v.window / 4 + 1000)
      local front, behind = string.match(header, '^(.*|' .. v.window .. ' %d+ %d+ %d+ )%d+(.*)$')
      header = front and front .. ends .. behind or header .. '|' .. v.window .. ' 0 0 0 ' .. ends
      lives = math.max(lives, ends - milli)
    end
  end
  if lives > 0 then
    redis.call('LSET', l.log, '0', header)
    if redis.call('PTTL', l.log) < lives then
      redis.call('PEXPIRE', l.log, lives)
    end
  end
end

-- Writes the header of a log, without the windows that nobody asks for any more and the entries that have
-- left all others. A window is kept for its length after it was asked for, since old and new processes run
-- side by side. An entry may be given that is pushed at the end.
local function save(l, text)
  local drop, dropped, expires = l.entries, 0, nil
  for n = #l.views, 1, -1 do
    local v = l.views[n]
    if needed(l, v) > v.ends + 0 then
      v.ends = v.asked and string.format('%d', needed(l, v) + v.window / 4 + 1000)
      expires = v.ends
    end
    if v.ends then
      drop = math.min(drop, v.gone)
    else
      table.remove(l.views, n)
    end
  end
  if drop == l.entries and not text then
    redis.call('DEL', l.log) -- nothing counts any more
    return
  elseif drop > 0 then
    redis.call('LTRIM', l.log, drop, '-1')
    for _, v in ipairs(l.views) do
      dropped = v.gone == drop and v.left or dropped
    end
    l.units = l.units - dropped
  end
  local header = string.format('%d %d %d %d %d', l.part, l.base, l.late, l.units,
    l.entries - drop + (text and 1 or 0))
  for _, v in ipairs(l.views) do
    header = header .. string.format('|%s %d %d %d %s', v.window, v.gone - drop, v.left - dropped, v.next,
      v.ends)
    expires = expires and math.max(expires, v.ends)
  end
  if l.entries == 0 then
    redis.call('RPUSH', l.log, header, text)
  else
    redis.call('LSET', l.log, '0', header)
    if text then
      redis.call('RPUSH', l.log, text)
    end
  end
  if expires then
    redis.call('PEXPIRE', l.log, expires - milli)
  end
end

local calls
if periods or force then
  calls = cost > 0 and redis.call('GET', names) or ''
  local found, full = string.find(calls, call, 1, true), #calls >= 64 * 24
  local known = found and string.match(calls, '^[-+=]', found + 6)
  local forgets = full and ARGV[3] ~= '1' and not string.find(calls, ARGV[3], 1, true)
  if known == '-' or force and (known or forgets) then
    return {'gone', now, 0, 0}
  end
  calls = (full and string.sub(calls, 25) or calls) .. call .. (force and '=' or '+') ..
    string.format('%016d ', now)
end
if reply[1] ~= 'ok' or cost == 0 then
  for _, l in ipairs(cost > 0 and levels or {}) do
    if l.entries > 0 and walked > 128 then
      l.late = now
      save(l)
    elseif l.entries > 0 then
      note(l)
    end
  end
  return reply
end

local sequence = math.max((decided[1] or 0) + 1, now)
for i, l in ipairs(levels) do
  if l.windows ~= '' then
    local ended = l.entries > 0 -- whether all entries have left all windows
    for _, v in ipairs(l.views) do
      ended = ended and v.gone == l.entries
    end
    if ended then
      redis.call('DEL', l.log)
      l.entries, l.units, l.part = 0, 0, string.match(l.windows, '^%d+') + 0
      l.at = math.ceil(now / l.part)
      l.base = l.at
      for _, v in ipairs(l.views) do
        v.gone, v.left, v.ends = 0, 0, '0'
      end
    end
    local n, units, merged = l.at - l.base, cost, false
    if l.entries > 0 and l.late > (l.at - 1) * l.part then -- in the part of the last entry
      local part, before = string.match(redis.call('LINDEX', l.log, '-1'), '^(%d+)%*?(%d*)$')
      merged = part + 0 == n
      units = merged and cost + (before == '' and 1 or before) or cost
    end
    for _, v in ipairs(l.views) do
      if v.next == 0 and v.asked then -- of others it stays unknown
        v.next = l.at * l.part + v.window * 1000
      end
    end
    l.units, l.late = l.units + cost, now
    local text = string.format(units == 1 and '%d' or '%d*%d', n, units)
    if merged then
      redis.call('LSET', l.log, '-1', text)
      save(l)
    else
      save(l, text)
    end
  end
  local p = l.p
  if p then
    if p ~= l.was then
      if l.was then
        redis.call('HSET', l.node, string.format('%d %d', l.was.begins, l.was.ends),
          string.format('%d %d %s', l.was.used, sequence, l.was.began)) -- as final, it is exported once more
      end
      for _, field in ipairs(redis.call('HKEYS', l.node)) do
        local begins, ends = string.match(field, '^(%d+) (%d+)$')
        if ends and (ends + keep <= milli or begins + 0 == p.begins and ends + 0 == p.ends) then
          redis.call('HDEL', l.node, field)
        end
      end
    end
    local at = string.format('%d', sequence)
    redis.call('HSET', l.node, 'p', string.format('%d %d %d %s %s %s', p.begins, p.ends, p.used + cost,
      p.told, at, p.began or at .. ' 0'))
    if p ~= l.was then
      redis.call('PEXPIRE', l.node, p.ends + keep - milli)
    end
    redis.call('ZADD', rows, at, ARGV[2 * i + 4])
    reply[3], sequence = sequence, sequence + 1
  end
end
if calls then
  redis.call('SET', names, calls, 'PX', 120000)
end
if periods then
  redis.call('HSET', root, '=', string.format('%d', sequence - 1))
end
-- For a year at least, overrides and sequences outlive the last call. They are looked after once a day.
local day = 86400000000
if (periods or overridden) and math.floor((decided[1] or 0) / day) ~= math.floor(now / day) then
  redis.call('PEXPIRE', root, '63244800000')
  redis.call('PEXPIRE', rows, '63244800000')
  redis.call('ZREMRANGEBYSCORE', rows, '0', string.format('%d', now - 3 * 366 * day))
end
for _, number in ipairs(alerts or {}) do
  reply[#reply + 1] = number
end
return reply
