-- Sliding window: at most `max` units in any `window`, for one limit or several at once, all or nothing.
-- Each limit has a log: the moments at which units were admitted, oldest first, in microseconds since 1970. A unit leaves its
-- log when its window is over and all before it have left, so a clock that is set back lets nobody in too early.
-- A refused attempt takes nothing, and writes nothing but that units which have left for long are dropped, many at once.
--
-- KEYS  1 log            list; further limits have their logs in 2, 3 and so on
-- ARGV  1 max, 2 window  units, milliseconds; further limits follow in 3 and 4, 5 and 6 and so on
--       then cost        units that this attempt takes, no more than the smallest max; absent: 1; 0: none, and the answer is
--                        whether one unit would be allowed
--       then now         microseconds since 1970; absent: the server's clock
-- Returns {1, remaining, stamp, limit} when allowed, else {0, remaining, retry, limit}
--       remaining  units left in the limit that speaks; below 0 when its max has become smaller than what is in the log
--       stamp      the moment of admission, for sliding_window_refund
--       retry      microseconds until the same cost fits every limit
--       limit      which limit speaks, from 1: the one with least left; when refused, the one that is full longest;
--                  absent when it is the first

local limits = #KEYS
local cost, stamp = ARGV[limits * 2 + 1], ARGV[limits * 2 + 2]
cost = cost and cost + 0 or 1
if not stamp then
  local time = redis.call('TIME')
  stamp = time[1] .. string.sub('00000' .. time[2], -6)
end
local now = stamp + 0
local need = math.max(cost, 1)

local speaks, remaining, retry
local trim, renew = {}, {}

for i = 1, limits do
  local log, window = KEYS[i], ARGV[i * 2] * 1000
  local count = redis.call('LLEN', log)

  -- How many units leave now, and when the next one will. Mostly none does; after a pause many do, and are read in chunks.
  local gone, wait = 0, nil
  if count > 0 then
    local head = redis.call('LINDEX', log, '0')
    wait = head + window - now
    if wait <= 0 then
      local at, chunk
      repeat
        gone = gone + 1
        if gone == 1 then
          at = redis.call('LINDEX', log, '1')
        else
          if gone % 50 == 2 then
            chunk = redis.call('LRANGE', log, gone, gone + 49)
          end
          at = chunk[(gone - 2) % 50 + 1]
        end
        wait = at and at + window - now
      until not wait or wait > 0
      trim[i] = gone
      renew[i] = at and math.floor(head / window * 4) ~= math.floor(at / window * 4)
    end
  end
  if gone == count then
    renew[i] = true
  end

  local left = ARGV[i * 2 - 1] - count + gone
  if left < need then
    if need - left > 1 then
      -- Several units have to leave, and the attempt fits when the last of them does.
      wait = redis.call('LINDEX', log, gone + need - left - 1) + window - now
    end
    if not retry or wait > retry then
      speaks, remaining, retry = i, left, wait
    end
  elseif not retry and (not speaks or left - cost < remaining) then
    speaks, remaining = i, left - cost
  end
end

if speaks == 1 then
  speaks = nil
end
if retry then
  for i = 1, limits do
    if cost > 0 and trim[i] and trim[i] > 50 then
      redis.call('LTRIM', KEYS[i], trim[i], '-1')
      redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[i * 2] * 2.25) + 1)
    end
  end
  return {0, remaining, retry, speaks}
end
if cost == 0 then
  return {1, remaining, now, speaks}
end

-- A call takes only so many arguments.
local units = {stamp}
for n = 2, math.min(cost, 1000) do
  units[n] = stamp
end

for i = 1, limits do
  for from = 1, cost, 1000 do
    redis.call('RPUSH', KEYS[i], unpack(units, 1, math.min(cost - from + 1, 1000)))
  end
  if trim[i] then
    redis.call('LTRIM', KEYS[i], trim[i], '-1')
  end
  -- A log must live for a window after each unit. To spare most units the PEXPIRE, it is given two windows and a quarter when it
  -- begins, and again whenever its head moves on to another quarter. So since the last renewal the head has moved by less
  -- than a quarter, and a unit comes less than a window after the head of its time.
  if renew[i] then
    redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[i * 2] * 2.25) + 1)
  end
end
return {1, remaining, now, speaks}
