-- Red packets: gives a user the next share of a packet, once. left + grabbed + refunded = total, before and
-- after. A refused attempt writes nothing.
--
-- KEYS  1 packet      hash, as red_packet_create writes it
--       2 shares      list, likewise
--       3 grabs       hash, user -> amount
--       4 operations  hash, operation ID -> "user call"; call: the call that grabbed
-- ARGV  1 operation   the operation ID, encoded
--       2 user        encoded text: no spaces
--       3 call        one word that names this call, so that a resend after a lost reply is no replay
--       4 now         milliseconds since 1970; absent or empty: the server's clock
-- Returns {reason, replayed, amount, left, count}
--       reason    ok, not_ready (no such packet), conflict, duplicate (the user has another share), closed,
--                 empty
--       replayed  1 when the answer is the stored one of an earlier call with the same operation ID
--       amount    the user's amount when ok or duplicate; else 0
--       left      shares left
--       count     shares in all

local packet, shares, grabs, operations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, user, call = ARGV[1], ARGV[2], ARGV[3]
local now = tonumber(ARGV[4])

local p = redis.call('HMGET', packet, 'count', 'expires', 'keep', 'refunded', 'rest')
if not p[1] then
  return {'not_ready', 0, 0, 0, 0}
end
local count, expires, keep, refunded = tonumber(p[1]), tonumber(p[2]), tonumber(p[3]), p[4]
local left = redis.call('LLEN', shares)
if left + redis.call('HLEN', grabs) + tonumber(p[5] or 0) ~= count then
  return redis.error_reply('GATEHOUSE lost: shares or grabs of ' .. packet ..
    ': together they are not all of it')
end

local owner, grabber = string.match(redis.call('HGET', operations, id) or '', '^(%S+) (%S+)$')
if owner and owner ~= user then
  return {'conflict', 0, 0, left, count}
end
local amount = redis.call('HGET', grabs, user)
if amount and owner then
  return {'ok', grabber == call and 0 or 1, tonumber(amount), left, count}
elseif amount then
  return {'duplicate', 0, tonumber(amount), left, count}
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if refunded or now >= expires then -- refunded stays closed, even if the clock was set back since
  return {'closed', 0, 0, left, count}
elseif left == 0 then
  return {'empty', 0, 0, left, count}
end

-- LPOP goes last: a full Redis would accept it, and the share would be lost. It rejects HSET before anything
-- is written.
amount = redis.call('LINDEX', shares, 0)
redis.call('HSET', grabs, user, amount)
redis.call('HSET', operations, id, user .. ' ' .. call)
redis.call('LPOP', shares)
redis.call('PEXPIREAT', grabs, expires + keep)
redis.call('PEXPIREAT', operations, expires + keep)
return {'ok', 0, tonumber(amount), left - 1, count}
