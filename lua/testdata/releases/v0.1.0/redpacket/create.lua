-- Red packets: creates a packet of shares, once. A packet that exists stays unchanged, whatever the shares of
-- this call.
--
-- KEYS  1 packet      hash: what it was made of, and once it is refunded the amount and the number of shares
--                     ("rest") that were left
--       2 shares      list, the amounts that are left; the next one to be grabbed first
--       3 grabs       hash, as red_packet_grab writes it
--       4 operations  hash, likewise
-- ARGV  1 total       the sum of all amounts, below 2^53
--       2 min         the least amount of a share
--       3 expires     milliseconds since 1970
--       4 keep        milliseconds that the packet is kept after it has expired
--       5 call        one word that names this call: a resend after a lost reply receives made again
--       6 now         milliseconds since 1970; absent or empty: the server's clock
--       7... amounts  one for each share
-- Returns {reason}
--       reason      made (this call created the packet), exists (with the same figures), other (a packet with
--                   other figures exists) or expired (there is none, and it would expire at once)

local packet, shares = KEYS[1], KEYS[2]
local total, min, expires, keep, call = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = tonumber(ARGV[6])
local first = 7
local count = tostring(#ARGV - first + 1)

local p = redis.call('HMGET', packet, 'total', 'min', 'expires', 'count', 'call')
if p[1] then
  if p[1] ~= total or p[2] ~= min or p[3] ~= expires or p[4] ~= count then
    return {'other'}
  elseif p[5] == call then
    return {'made'}
  end
  return {'exists'}
end
-- A new packet beside the grabs of a lost one would not add up.
if redis.call('EXISTS', shares, KEYS[3], KEYS[4]) > 0 then
  return redis.error_reply('GATEHOUSE lost: the packet ' .. packet .. ', of which a part is left')
end
local sum = 0
for i = first, #ARGV do
  sum = sum + tonumber(ARGV[i])
end
if sum ~= tonumber(total) then
  return redis.error_reply('GATEHOUSE the amounts are not the total of ' .. packet)
end

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if now >= tonumber(expires) then
  return {'expired'}
end

redis.call('HSET', packet, 'total', total, 'min', min, 'expires', expires, 'keep', keep, 'count', count,
  'call', call)
for i = first, #ARGV, 500 do -- Lua cannot unpack thousands at once
  redis.call('RPUSH', shares, unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
redis.call('PEXPIREAT', packet, expires + keep)
redis.call('PEXPIREAT', shares, expires + keep)
return {'made'}
