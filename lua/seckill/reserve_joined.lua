-- Seckill: attempts of one moment at one item. It gives the answers that seckill_reserve gives to one after
-- the other, and writes what that writes. It decides nothing more where that would return expired holds to
-- the stock, and where an operation ID comes a second time.
--
-- KEYS  1 sale          hash, as seckill_open writes it
--       2 buyers        hash, as seckill_reserve writes it
--       3 holds         sorted set, likewise
--       4 reservations  hash, likewise
--       5 outbox        stream, as seckill_open writes it; absent: no events
-- ARGV  1 now           milliseconds since 1970; absent or empty: the server's clock
--       2... attempts   "reservation buyer quantity call", as seckill_reserve takes them, in the order of
--                       arrival, 1000 at most
-- Returns {reply, ...}, for each attempt the reply of seckill_reserve, or {2}: it is not decided; or one
--         reply to all attempts

local sale, buyers, holds, reservations, outbox = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock

local s = redis.call('HMGET', sale, 'stock', 'left', 'held', 'sold', 'terms')
if not s[1] then
  return {'not_ready', 0, '', 0, 0, 0, 0}
end
local terms = s[5]
-- shared sale_stock
local stock, left, held, sold = s[1] + 0, s[2] + 0, s[3] + 0, s[4] + 0
if left + held + sold ~= stock then
  return redis.error_reply('GATEHOUSE left + held + sold is not the stock of ' .. sale)
end
-- end sale_stock
-- shared sale_terms
local opens, closes, per_buyer, hold, keep, ends = string.match(terms,
  '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
opens, closes, per_buyer = opens + 0, closes + 0, per_buyer + 0 -- at a sixth of the cost of tonumber
-- end sale_terms
-- shared sale_whole
-- Each part has an entry '|' from the opening on, so that one that does not exist was lost.
local lost
if redis.call('EXISTS', buyers, holds, reservations, outbox or holds) < 4 then
  lost = redis.call('EXISTS', reservations) == 0 and 'reservations' or nil
  lost = redis.call('EXISTS', holds) == 0 and 'holds' or lost
  lost = redis.call('EXISTS', buyers) == 0 and 'buyers' or lost
  ends = 0
end
-- end sale_whole
if lost then
  return {'lost ' .. lost, 0, '', left, stock, 0, 0}
end

local attempts, ids, names = {}, {}, {}
for n = 2, #ARGV do
  local id, buyer, units, call = string.match(ARGV[n], '^(%S+) (%S+) (%S+) (%S+)$')
  attempts[n - 1], ids[n - 1], names[n - 1] = {id, buyer, units, call}, id, buyer
end
local records = redis.call('HMGET', reservations, unpack(ids))
local units_of = redis.call('HMGET', buyers, unpack(names))
local has = {} -- what each buyer has, with what this run gives
for n, buyer in ipairs(names) do
  has[buyer] = (units_of[n] or 0) + 0
end

-- Decides an attempt, or returns nil. What it gives is in made, and is written when all are decided, but for
-- the event, which the record names.
local changed, timers, made, expired = {}, {}, {}, nil
local said = {} -- the refusals of those of whom no unit was taken meanwhile, by reason
local finish = string.format('%.0f', now + hold)
local function decide(record, id, buyer, units, call)
  -- shared sale_known
  local marks, over = '', false -- marks: of calls that were taken back
  if record then
    local state, who, had, finish, words = string.match(record, '^(%a+) (%S+) (%d+) (%d+) %S+(.*)$')
    marks = string.gsub(words, ' [^-]%S*', '')
    local callers = string.gsub(words, ' %-%S+', '')
    local _, undecided = string.gsub(callers, ' ', ' ')
    local replayed = string.find(callers .. ' ', ' +' .. call .. ' ', 1, true) and 0 or 1
    local known = replayed == 0 or string.find(callers .. ' ', ' ' .. call .. ' ', 1, true)
    if who ~= buyer or (had ~= units and state ~= 'cancelled') then
      return {'conflict', 0, '', left, stock, 0, 0}
    elseif string.find(marks .. ' ', ' -' .. call .. ' ', 1, true) then
      return {'gone', 0, '', left, stock, 0, 0}
    elseif state == 'sold' then
      return {'ok', replayed, 'sold', left, stock, 0, 0}
    elseif state == 'held' and tonumber(finish) > now then
      if not known and undecided >= 16 then
        -- Each call that gets a hold is stored, or one that fails would give back what another call got. So
        -- that a record stays short, no more calls than these get it.
        return {'in_progress', 0, '', left, stock, finish - now, 0}
      elseif not known then
        redis.call('HSET', reservations, id, record .. ' ' .. call)
      end
      return {'ok', replayed, 'held', left, stock, finish - now, 0}
    end
    over = state == 'held'
  end
  -- end sale_known
  if over then
    return nil
  elseif now < opens then
    return {'early', 0, '', left, stock, opens - now, 0}
  elseif closes > 0 and now >= closes then
    return {'closed', 0, '', left, stock, 0, 0}
  end
  local quantity, reason = units + 0, nil
  if has[buyer] + quantity > per_buyer then
    reason = 'duplicate'
  elseif left < quantity then
    reason = 'sold_out'
  end
  if reason then
    expired = expired or held > 0 and redis.call('ZCOUNT', holds, '-inf', now) or 0
    said[reason] = said[reason] or reason .. string.format(' %.0f ', left) .. s[1]
    return expired == 0 and said[reason] or nil
  end
  local event = '-'
  if outbox then
    event = redis.call('XADD', outbox, '*', 'event', 'held', 'id', id, 'buyer', buyer, 'quantity', units,
      'ends', finish)
  end
  left, has[buyer] = left - quantity, has[buyer] + quantity
  local n = #made
  changed[n + 1], changed[n + 2] = buyer, has[buyer]
  timers[n + 1], timers[n + 2] = finish, id
  made[n + 1], made[n + 2] = id, 'held ' .. buyer .. ' ' .. units .. ' ' .. finish .. ' ' .. event .. marks ..
    ' +' .. call
  said = {}
  return {'ok', 0, 'held', left, stock, hold + 0, 0}
end

local replies, seen = {}, {}
for n, attempt in ipairs(attempts) do
  replies[n] = not seen[attempt[1]] and decide(records[n], unpack(attempt))
  if not replies[n] then
    for rest = n, #attempts do
      replies[rest] = {2}
    end
    break
  end
  seen[attempt[1]] = true
end
if #made == 0 then
  return replies
end

redis.call('HSET', buyers, unpack(changed))
redis.call('ZADD', holds, unpack(timers))
redis.call('HSET', sale, 'left', left, 'held', stock - left - sold)
redis.call('HSET', reservations, unpack(made))
-- shared sale_keep
-- All keys end at the same time. It is a little later than the sale needs, so that most changes leave it.
local least = math.max(now, closes) + keep
if least > ends + 0 then
  ends = least + math.floor(keep / 64)
  local ttl = string.format('%.0f', ends - now)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, ttl)
  end
  redis.call('HSET', sale, 'terms', (string.gsub(terms, '%S+$', string.format('%.0f', ends))))
end
-- end sale_keep
return replies
