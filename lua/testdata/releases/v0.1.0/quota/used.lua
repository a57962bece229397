-- Quota: returns the different items of a period. It writes nothing.
--
-- KEYS  1 items       hash, as quota writes it
-- ARGV  1 begins, 2 ends  the period, as quota takes it
--       3 now         milliseconds since 1970; absent or empty: the server's clock
-- Returns {now, items}: milliseconds since 1970, and the items in no order. There are no items when now is
--         not in the period.

local items, begins, ends, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- shared clock
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- end clock
if now < begins or now >= ends then
  return {now, {}}
end
return {now, redis.call('HKEYS', items)}
