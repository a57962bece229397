-- Quota: counts one more different item in a period, at most `max`. An item that is known already is free.
-- A refused attempt writes nothing.
--
-- KEYS  1 items       hash, item -> the calls that received a yes for it, separated by spaces:
--                     "operation=call" received ok, "operation|call" received again; "operation==call" and
--                     "operation||call" received that as a replay. After "*", the item cannot be undone any
--                     more
--       2 operations  set: the operations in items whose ID came from outside
--       3 void        string: the tombstone of this call, when it was undone and may still arrive
-- ARGV  1 begins, 2 ends  the period, in milliseconds since 1970: from begins on, up to but not including
--                         ends
--       3 keep        milliseconds for which the items are kept after the period
--       4 max         different items in the period
--       5 item        encoded text: no spaces
--       6 operation   the operation ID, encoded: no spaces, no "=", no "|"
--       7 given       1 when the operation ID came from outside, 0 when nobody else knows it
--       8 call        one word that names this call, so that a resend after a lost reply is no replay. An
--                     item is removed when all calls that received a yes for it are undone (see quota_undo)
--       9 now         milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, count, now}
--       reason    ok, again (a known item), quota (max items are taken), conflict (the operation belongs to
--                 another item), day_rolled (now is not in the period), gone (this call was undone before it
--                 arrived)
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       count     different items in the period, after this call
--       now       milliseconds since 1970, the moment of the decision

local items, operations, void = KEYS[1], KEYS[2], KEYS[3]
local begins, ends, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local max, item, operation = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local given, call, now = ARGV[7] == '1', ARGV[8], tonumber(ARGV[9])
local share = 8 -- calls remembered per item: few calls share one item

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if now < begins or now >= ends then
  return {'day_rolled', 0, 0, now}
end

local count = redis.call('HLEN', items)
if redis.call('EXISTS', void) == 1 then
  return {'gone', 0, count, now}
end

local told = redis.call('HGET', items, item)
local calls = ' ' .. (told or '') .. ' '
local reason, mark, replayed = 'ok', '=', 0
if string.find(calls, ' ' .. operation .. '=', 1, true) then
  replayed = 1
elseif string.find(calls, ' ' .. operation .. '|', 1, true) then
  reason, mark, replayed = 'again', '|', 1
elseif given and redis.call('SISMEMBER', operations, operation) == 1 then
  return {'conflict', 0, count, now}
elseif told then
  reason, mark = 'again', '|'
elseif count >= max then
  return {'quota', 0, count, now}
else
  count = count + 1
end

local this = operation .. mark .. call
if string.find(calls, ' ' .. this .. ' ', 1, true) then
  return {reason, 0, count, now}
end
if replayed == 1 then
  this = operation .. mark .. mark .. call
end
if string.find(calls, ' ' .. this .. ' ', 1, true) then
  return {reason, 1, count, now}
elseif string.sub(calls, -3) == ' * ' then
  return {reason, replayed, count, now}
end

local _, spaces = string.gsub(calls, ' ', ' ')
if not told then
  redis.call('HSET', items, item, this)
elseif spaces <= share then
  redis.call('HSET', items, item, told .. ' ' .. this)
else
  redis.call('HSET', items, item, told .. ' *')
  given = false
end
local ttl = ends + keep - now
redis.call('PEXPIRE', items, ttl)
if given then
  redis.call('SADD', operations, operation)
  redis.call('PEXPIRE', operations, ttl)
end
return {reason, replayed, count, now}
