-- Market: the buyer pays, the seller is paid, and the item changes hands: all or nothing. A refused attempt
-- writes nothing.
--
-- KEYS  1 funds   hash, as deposit writes it
--       2 items   hash, as offer writes it
--       3 op      hash: what, number; the answer to this operation
-- ARGV  1 buyer   encoded text
--       2 item    encoded text
--       3 price   that the buyer has seen
--       4 keep    milliseconds that the market is kept after its latest change
--       5 replay  milliseconds that the answer to this operation is kept
-- Returns {reason, number}
--       reason    ok, replayed (bought before by the same operation), conflict (it was another operation),
--                 unknown (no such item), own (the buyer has it), not_offered, price (it has changed),
--                 funds (too little)
--       number    ok, replayed: the buyer's balance after the purchase; price: the new one; funds: the
--                 balance; else 0

local funds, items, op = KEYS[1], KEYS[2], KEYS[3]
local buyer, item, price, keep, replay = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

local what = 'buy ' .. item .. ' ' .. ARGV[3]
local done = redis.call('HMGET', op, 'what', 'number')
if done[1] == what then
  return {'replayed', tonumber(done[2])}
elseif done[1] then
  return {'conflict', 0}
end
local record = redis.call('HGET', items, item)
if not record then
  return {'unknown', 0}
end
local seller, asked = string.match(record, '^(%S+) (%d+)$')
asked = tonumber(asked)
local balance = tonumber(redis.call('HGET', funds, buyer) or 0)
if seller == buyer then
  return {'own', 0}
elseif asked == 0 then
  return {'not_offered', 0}
elseif asked ~= price then
  return {'price', asked}
elseif balance < price then
  return {'funds', balance}
end

-- The amounts go to HINCRBY as text: Lua would write a large number as 1e+15.
balance = redis.call('HINCRBY', funds, buyer, '-' .. ARGV[3])
redis.call('HINCRBY', funds, seller, ARGV[3])
redis.call('HSET', items, item, buyer .. ' 0')
redis.call('HSET', op, 'what', what, 'number', balance)
redis.call('PEXPIRE', op, replay)
redis.call('PEXPIRE', funds, keep)
redis.call('PEXPIRE', items, keep)
return {'ok', balance}
