-- Budget: decides an attempt against all limits of a path, such as an organisation, its team and its user.
-- All fit, or nothing is taken. A refused attempt writes nothing, except that it notes units that have left
-- their windows, and drops them, when that saves the next attempt a walk over more than 128 entries.
--
-- KEYS  1 root   hash: node -> override, "until w<window>=<max> p=<max>/<hard>"; !node -> until when it is
--                paused; "=" -> the sequence of the last change. An until of 0 never ends
--       2 rows   sorted set: node -> the sequence of its last change, for exports
--       then for each level that is present, the outermost first:
--       log      list: "part base late units entries|window gone left next named ...", then the entries: n, a
--                unit in part base + n, or n*c, c units. Each window is a view of the log: how many entries
--                at its head have left it, their units, when the next one leaves (0: unknown), and when it
--                was asked for last. late is the moment of the last unit
--       node     hash: p -> "begins ends used sequence alert" of the period in force; "begins ends" ->
--                "used sequence" of ended ones; of the last level also c -> its last 64 calls, see below
-- ARGV  1 cost   units; 0: none, and answer whether one would be allowed
--       2 call   the name of this call, 6 characters
--       3 force  0; 1 when the units are spent already: they are taken whatever is left; 2 when an earlier
--                sending of that may have run
--       4 keep   milliseconds for which periods that have ended are kept
--       5 now    microseconds since 1970; absent or empty: the server's clock
--       then for each level that is present
--       name     of the node: no spaces
--       windows  "part max/window ...", microseconds, units, milliseconds; a unit counts as taken at the end
--                of its part. Empty: none
--       period   "max hard begins ends", units, where they end (-1: nowhere), milliseconds. Empty: none
-- Returns {reason, stamp, sequence, then for each limit, a level's windows before its period: its max, the
--         units that count, for how many microseconds it refuses the attempt, and those until it has a unit
--         more; then for each alert level, percent}, or {reason, stamp, level, wait}
--         reason    ok, limited (a window or a period), or one of the short form: paused (microseconds; 0:
--                   for ever), period (the stamp is not in the period of the level), gone (the call was
--                   undone before it arrived)
--         stamp     the moment of the decision, microseconds
--         sequence  that of the last change, 0 where nothing has a period
--         A period's max is where it ends, if it ends anywhere.
--
-- c has words of 24 characters: "<call><state><stamp> ", where the state is + for one that ran, = for one
-- that was settled, and - for one that was undone before it arrived.

local root, rows, last = KEYS[1], KEYS[2], KEYS[#KEYS]
local cost, call, force, keep = ARGV[1] + 0, ARGV[2], ARGV[3] ~= '0', ARGV[4] + 0
local now = tonumber(ARGV[5])
local year = 31622400000 -- for so long, at least half of it, overrides and sequences outlive the last call
-- shared clock_micro
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- end clock_micro
local need = cost > 0 and cost or 1

local names, levels = {}, {}
for i = 1, #KEYS / 2 - 1 do
  local name = ARGV[i * 3 + 3]
  names[i * 2 - 1], names[i * 2] = name, '!' .. name
  levels[i] = {name = name, log = KEYS[i * 2 + 1], node = KEYS[i * 2 + 2], windows = ARGV[i * 3 + 4],
    period = ARGV[i * 3 + 5], views = {}, units = 0, entries = 0}
end

-- Time never runs backwards along a path: below the last unit of a log its moment counts, and before the
-- period in force its first moment does, so that no clock that is set back gives anybody two.
local today = math.floor(now / 1000)
for _, l in ipairs(levels) do
  local stored = l.period ~= '' and redis.call('HGET', l.node, 'p')
  if stored then
    local begins, ends, used, sequence, alert = string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    l.was = {begins = begins + 0, ends = ends + 0, used = used + 0, sequence = sequence, alert = alert + 0}
    now = math.max(now, l.was.begins * 1000)
  end
  local header = l.windows ~= '' and redis.call('LINDEX', l.log, '0')
  if header then
    local numbers = {}
    for number in string.gmatch(header, '%d+') do
      numbers[#numbers + 1] = number + 0
    end
    l.part, l.base, l.late, l.units, l.entries = unpack(numbers, 1, 5)
    for n = 6, #numbers, 5 do
      l.views[#l.views + 1] = {window = numbers[n], gone = numbers[n + 1], left = numbers[n + 2],
        next = numbers[n + 3], named = numbers[n + 4]}
    end
    now = math.max(now, l.late)
  end
end
local milli = math.floor(now / 1000)

-- What has been decided for a node: its override and its pause, as long as they are not over.
local decided, overridden = redis.call('HMGET', root, unpack(names)), false
for i, l in ipairs(levels) do
  local override, paused = decided[i * 2 - 1], decided[i * 2]
  overridden = overridden or override or paused
  if paused and not force and (paused == '0' or paused + 0 > today) then
    return {'paused', now, i, paused == '0' and 0 or (paused - today) * 1000}
  end
  local ends = override and string.match(override, '^%d+') + 0
  l.override = ends and (ends == 0 or ends > today) and override or ''
end

-- An entry's part, and its units.
local function entry(text)
  local n = tonumber(text)
  if n then
    return n, 1
  end
  local part, units = string.match(text, '^(%d+)%*(%d+)$')
  return part + 0, units + 0
end

-- Calls f for the entries of a log behind the first ones, until it returns true.
local function walk(l, from, f)
  local step = 1
  while from < l.entries do
    for n, text in ipairs(redis.call('LRANGE', l.log, from + 1, from + step)) do
      if f(from + n, entry(text)) then
        return
      end
    end
    from, step = from + step, math.min(step * 8, 128)
  end
end

local reply, alerts = {'ok', now, 0}, {}
local function tell(max, used, wait, reset)
  if wait > 0 then
    reply[1] = 'limited'
  end
  for _, number in ipairs({max, used, wait, reset}) do
    reply[#reply + 1] = number
  end
end

local walked = 0
for i, l in ipairs(levels) do
  if l.windows ~= '' then
    local part, limits = string.match(l.windows, '^(%d+) (.*)$')
    l.part = l.entries > 0 and l.part or part + 0
    l.base = l.entries > 0 and l.base or math.ceil(now / l.part)
    l.at, l.own = math.ceil(now / l.part), part + 0
    for max, window in string.gmatch(limits, '(%d+)/(%d+)') do
      max = (l.override ~= '' and string.match(l.override, ' w' .. window .. '=(%d+)') or max) + 0
      window = window * 1
      local view
      for _, v in ipairs(l.views) do
        view = v.window == window and v or view
      end
      if not view then
        view = {window = window, gone = 0, left = 0, next = 0}
        l.views[#l.views + 1] = view
      end
      view.named, view.asked = milli, true
      if view.next <= now then
        local before = view.gone
        view.next = 0
        walk(l, view.gone, function(place, n, units)
          local leaves = (l.base + n) * l.part + window * 1000
          if leaves <= now then
            view.gone, view.left = place, view.left + units
          elseif units > 0 then
            view.next = leaves
            return true
          end
        end)
        walked = math.max(walked, view.gone - before)
      end
      local used, wait = l.units - view.left, 0
      if used + need > max and not force then
        local lacking = used + need - max
        if need > max then
          wait = -1
          reply[1] = 'limited'
        else
          walk(l, view.gone, function(_, n, units)
            lacking = lacking - units
            if lacking <= 0 then
              wait = (l.base + n) * l.part + window * 1000 - now
              return true
            end
          end)
        end
      end
      local reset = view.next > 0 and view.next - now or cost > 0 and l.at * l.part + window * 1000 - now or 0
      tell(max, used, wait, reset)
    end
  end
  if l.period ~= '' then
    local max, hard, begins, ends = string.match(l.period, '^(%d+) (-?%d+) (%d+) (%d+)$')
    local newMax, newHard = string.match(l.override, ' p=(%d+)/(-?%d+)')
    max, hard, begins, ends = (newMax or max) + 0, (newHard or hard) + 0, begins + 0, ends + 0
    local p = l.was
    if not p or p.ends <= milli or p.begins < begins then
      if milli < begins or milli >= ends then
        return {'period', now, i, 0}
      end
      if not p or p.begins ~= begins or p.ends ~= ends then
        local used = redis.call('HGET', l.node, string.format('%d %d', begins, ends))
        p = {begins = begins, ends = ends, alert = 0, used = used and string.match(used, '^%d+') + 0 or 0}
      end
    end
    l.p = p
    local wait, resets = 0, math.max(p.ends * 1000 - now, 1)
    if hard >= 0 and p.used + need > hard and not force then
      wait = need > hard and -1 or resets
      reply[1] = 'limited'
    end
    tell(hard >= 0 and hard or max, p.used, wait, resets)
    local after = p.used + cost
    local percent = after >= max and 100 or after * 5 >= max * 4 and 80 or 0
    if cost > 0 and percent > p.alert then
      p.alert = percent
      alerts[#alerts + 1], alerts[#alerts + 2] = i, percent
    end
  end
end

-- Writes the header of a log, without the entries that have left all its windows. A window that nobody asks
-- for stays until it has passed, since old and new processes run side by side.
local function save(l)
  local views, drop, longest = {}, l.entries, 0
  for _, v in ipairs(l.views) do
    if v.named + v.window + l.part / 1000 + 1 > milli then -- its last unit counts as of the end of a part
      views[#views + 1] = v
      drop, longest = math.min(drop, v.gone), math.max(longest, v.window)
    end
  end
  local dropped = drop > 0 and 0 or nil
  for _, v in ipairs(views) do
    dropped = dropped and v.gone == drop and v.left or dropped
  end
  if drop > 0 then
    redis.call('LTRIM', l.log, drop, '-1')
    l.units, l.entries = l.units - dropped, l.entries - drop
  end
  local words = {string.format('%d %d %d %d %d|', l.part, l.base, l.late, l.units, l.entries)}
  for n, v in ipairs(views) do
    words[n + 1] = string.format('%d %d %d %d %d', v.window, v.gone - drop, v.left - (dropped or 0),
      v.next, v.named)
  end
  redis.call('LSET', l.log, '0', table.concat(words, ' '))
  return longest
end

local periods = false
for _, l in ipairs(levels) do
  periods = periods or l.p
end
local calls = (periods or force) and cost > 0 and redis.call('HGET', last, 'c') or ''
local known, full = string.match(calls, call .. '([-+=])'), #calls >= 64 * 24
if known == '-' or force and (known or ARGV[3] == '2' and full) then
  return {'gone', now, 0, 0}
end
if reply[1] ~= 'ok' or cost == 0 then
  if walked > 128 and cost > 0 then
    for _, l in ipairs(levels) do
      if l.entries > 0 then
        save(l)
      end
    end
  end
  return reply
end

for _, l in ipairs(levels) do
  if l.windows ~= '' then
    local ended = true -- whether all entries have left all windows
    for _, v in ipairs(l.views) do
      ended = ended and v.gone == l.entries
    end
    if ended and l.entries > 0 then
      redis.call('DEL', l.log)
      l.entries, l.units = 0, 0
    end
    if l.entries == 0 then
      l.part = l.own
      l.at = math.ceil(now / l.part)
      l.base = l.at
      redis.call('RPUSH', l.log, '')
      for _, v in ipairs(l.views) do
        v.gone, v.left = 0, 0
      end
    end
    local number, units, merged = l.at - l.base, cost, false
    if l.entries > 0 and l.late > (l.at - 1) * l.part then -- in the part of the last entry
      local n, before = entry(redis.call('LINDEX', l.log, '-1'))
      merged, units = n == number, n == number and before + cost or cost
    end
    local text = string.format(units == 1 and '%d' or '%d*%d', number, units)
    if merged then
      redis.call('LSET', l.log, '-1', text)
    else
      redis.call('RPUSH', l.log, text)
      l.entries = l.entries + 1
    end
    for _, v in ipairs(l.views) do
      if v.next == 0 and v.asked then -- of others it stays unknown
        v.next = l.at * l.part + v.window * 1000
      end
    end
    l.units, l.late = l.units + cost, now
    redis.call('PEXPIRE', l.log, math.ceil(save(l) * 1.25 + l.part / 1000) + 1000)
  end
  local p = l.p
  if p then
    local sequence = redis.call('HINCRBY', root, '=', 1)
    reply[3] = sequence
    redis.call('ZADD', rows, sequence, l.name)
    if p ~= l.was then
      if l.was then
        redis.call('HSET', l.node, string.format('%d %d', l.was.begins, l.was.ends),
          string.format('%d %s', l.was.used, l.was.sequence))
      end
      local fields = redis.call('HKEYS', l.node)
      for _, field in ipairs(fields) do
        local begins, ends = string.match(field, '^(%d+) (%d+)$')
        if ends and (ends + keep <= milli or begins + 0 == p.begins and ends + 0 == p.ends) then
          redis.call('HDEL', l.node, field)
        end
      end
    end
    redis.call('HSET', l.node, 'p', string.format('%d %d %d %d %d', p.begins, p.ends, p.used + cost,
      sequence, p.alert))
    if p ~= l.was then
      redis.call('PEXPIRE', l.node, p.ends + keep - milli)
    end
  end
end
if periods or force then
  calls = full and string.sub(calls, 25) or calls
  redis.call('HSET', last, 'c', calls .. call .. (force and '=' or '+') .. string.format('%016d ', now))
  if redis.call('PTTL', last) < 120000 then
    redis.call('PEXPIRE', last, 120000)
  end
end
if (periods or overridden) and redis.call('PTTL', root) < year / 2 then
  redis.call('PEXPIRE', root, year)
  redis.call('PEXPIRE', rows, year)
end
for _, number in ipairs(alerts) do
  reply[#reply + 1] = number
end
return reply
